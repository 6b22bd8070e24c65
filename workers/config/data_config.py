"""What a trial is trained and evaluated on: a text corpus, a generated task, or a mixture of them."""

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from workers.config.checks import require
from workers.config.depths import Depths, parse_depths, scored_depths, write_depths
from workers.config.mixture import Part, parse_corpus, write_corpus
from workers.config.task_shapes import TASKS, group_order

BYTES_VOCAB_SIZE = 257
"""256 byte values, then the document separator (id 256)."""

CodeSets = Literal["none", "humaneval", "mbpp", "humaneval+mbpp"]
_CODE_SETS = ("none", "humaneval", "mbpp", "humaneval+mbpp")


@dataclass(frozen=True, kw_only=True)
class TokenizerFile:
    """A `tokenizer.json` as it stands in `vocab`."""

    vocab_size: int
    """Token ids of the model that was trained with it; the tokenizer may use fewer."""
    end: int
    """The id that ends a document."""
    sha256: str
    """First 16 digits, in hex."""
    path: str

    def __str__(self) -> str:
        return f"tokenizer:{self.vocab_size}:{self.end}:{self.sha256}:{self.path}"


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """Corpora and tasks, tokenizer, sequence length and difficulty.

    Depths are one number, a range or a list (`workers.config.depths`); what they count: `workers.config.task_shapes`.
    """

    corpus: str = "stdlib"
    """`stdlib`, `files:GLOB`, a task (`phop`, `addition`, ...), or a mixture such as `2*stdlib + phop`."""
    vocab: str = "bytes"
    """`bytes`, or `bpe:N` for a byte-level BPE of N tokens trained on the training split, or a tokenizer that exists,
    `tokenizer:N:E:HASH:PATH`: N ids, the one that ends a text, 16 digits of the file's SHA-256, the file. Ignored by
    tasks."""
    seq_len: int = 256
    """Slots per training sequence, S."""
    eval_sequences: int = 64
    """Held-out sequences that one evaluation scores, of every part of a mixture."""
    hops: Depths = 2
    """p-hop induction: p."""
    alphabet: int = 4
    """p-hop induction: number of symbols, V."""
    labels: Literal["dense", "last"] = "dense"
    """p-hop induction: a label at every slot where the p-hop value exists, or at the last slot only."""
    answer_delay: int = 0
    """Tasks: filler tokens between a query and its answer (CLP moves depth to later slots)."""
    extrapolate: int = 1
    """Tasks: evaluation also scores depths up to so many times the deepest trained one."""
    operands: Depths = "2,4,8,16,32"
    """Addition: numbers to add."""
    digits: int = 3
    """Addition: digits of every number."""
    operations: Depths = "1-4"
    """Symbolic i-GSM: sums from a constant to the answer."""
    statements: int = 12
    """Symbolic i-GSM: statements of a problem, needed or not."""
    copies: Depths = "0-4"
    """Variable assignment: copies from a value to the answer."""
    assignments: int = 16
    """Variable assignment: assignments of a program, needed or not."""
    products: Depths = 20
    """State tracking: elements of a sequence."""
    group: str = "s5"
    """State tracking: z2 to z99, s3, s4, s5, a4 or a5."""
    operators: Depths = "1-6"
    """Mano: operators of an expression."""
    successors: Depths = "1-4"
    """Depo: how far along the cycle a query asks."""
    nodes: int = 16
    """Depo: most nodes of a cycle."""
    name_tokens: int = 1
    """Depo: tokens of a node's name."""
    code_sets: CodeSets = "none"
    """Text: code whose reference solutions are scored after training; see `plt data fetch`."""

    def __post_init__(self) -> None:
        """Refuse values that no data set can have."""
        self._check(self.corpus, "corpus", parse_corpus)
        require(self.seq_len >= 2, "seq_len", self.seq_len, "2 or more slots")
        require(self.eval_sequences >= 1, "eval_sequences", self.eval_sequences, "1 or more")
        require(self.alphabet >= 2, "alphabet", self.alphabet, "2 or more symbols")
        require(self.labels in ("dense", "last"), "labels", self.labels, "dense or last")
        require(0 <= self.answer_delay < self.seq_len, "answer_delay", self.answer_delay, "from 0 to below seq_len")
        require(1 <= self.extrapolate <= 100, "extrapolate", self.extrapolate, "from 1 (trained depths only) to 100")
        require(1 <= self.digits <= 9, "digits", self.digits, "from 1 to 9")
        require(2 <= self.statements <= 48, "statements", self.statements, "from 2 to 48")
        require(1 <= self.assignments <= 1_000, "assignments", self.assignments, "from 1 to 1000")
        require(2 <= self.nodes <= 1_000, "nodes", self.nodes, "from 2 to 1000")
        require(1 <= self.name_tokens <= 4, "name_tokens", self.name_tokens, "from 1 to 4")
        require(self.code_sets in _CODE_SETS, "code_sets", self.code_sets, ", ".join(_CODE_SETS))
        self._check(self.group, "group", group_order)
        for task, shape in TASKS.items():
            depths = self._check(getattr(self, shape.depth), shape.depth, parse_depths)
            require(depths[0] >= shape.smallest, shape.depth, getattr(self, shape.depth), f"{shape.smallest} or more")
            if task in self.tasks:
                self._check_task(task)
        require(
            self.text is not None or self.code_sets == "none",
            "code_sets",
            self.code_sets,
            "none without a text in corpus",
        )
        if self.text is not None and self.vocab != "bytes" and self.tokenizer is None:
            require(
                self.bpe_size is not None and 257 <= self.bpe_size <= 65536,
                "vocab",
                self.vocab,
                "bytes, or bpe:N with N from 257 to 65536",
            )

    @staticmethod
    def _check(value: Any, name: str, parse: Any) -> Any:
        """What the value stands for; refused in the usual words when it stands for nothing."""
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"{name} is {value!r}; it {error}") from error

    def _check_task(self, task: str) -> None:
        shape, depths = TASKS[task], self.scored_depths(task)
        most, why = shape.deepest(self)
        written, beyond = getattr(self, shape.depth), "" if self.extrapolate == 1 else ", extrapolation included,"
        require(depths[-1] <= most, shape.depth, written, f"at most {most}{beyond} {why}".strip())
        require(
            self.eval_sequences >= len(depths),
            "eval_sequences",
            self.eval_sequences,
            f"at least {len(depths)}, one for every depth of {task} that is scored",
        )
        needed = shape.slots(self, depths[-1])
        require(
            self.seq_len >= needed,
            "seq_len",
            self.seq_len,
            f"at least {needed} for {task} with {shape.depth} {written}",
        )

    @property
    def parts(self) -> tuple[Part, ...]:
        """The members of the mixture; one when there is none."""
        return parse_corpus(self.corpus)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the generated parts."""
        return tuple(part.name for part in self.parts if part.is_task)

    @property
    def text(self) -> str | None:
        """The part that is read, or None."""
        return next((part.name for part in self.parts if not part.is_task), None)

    @property
    def is_task(self) -> bool:
        """Whether all of the data is generated rather than read."""
        return self.text is None

    @property
    def is_mixture(self) -> bool:
        """Whether there is more than one part."""
        return len(self.parts) > 1

    def trained_depths(self, task: str) -> tuple[int, ...]:
        """Depths that a task is trained on."""
        return parse_depths(getattr(self, TASKS[task].depth))

    def scored_depths(self, task: str) -> tuple[int, ...]:
        """Depths that a task is evaluated at, the deepest last."""
        return scored_depths(self.trained_depths(task), self.extrapolate)

    @property
    def counts_hops(self) -> bool:
        """Whether p-hop sequences begin by saying p, because it differs between sequences."""
        return len(self.scored_depths("phop")) > 1

    @property
    def task_symbols(self) -> int:
        """Symbols of a p-hop sequence, fillers and the count of hops left out."""
        length = self.seq_len - (self.scored_depths("phop")[-1] if self.counts_hops else 0)
        return length // (self.answer_delay + 1) if self.labels == "dense" else length - self.answer_delay

    @property
    def bpe_size(self) -> int | None:
        """N of `bpe:N`, or None."""
        head, _, size = self.vocab.partition(":")
        return int(size) if head == "bpe" and size.isdigit() else None

    @property
    def text_vocab_size(self) -> int:
        """Token ids of the text; 0 without any."""
        if self.text is None:
            return 0
        if self.tokenizer is not None:
            return self.tokenizer.vocab_size
        return self.bpe_size or BYTES_VOCAB_SIZE

    @property
    def vocab_size(self) -> int:
        """Token ids the model must know: the text's, then every task's own."""
        return self.text_vocab_size + sum(TASKS[task].vocab_size(self) for task in self.tasks)

    def of(self, part: Part) -> "DataConfig":
        """One part of the mixture by itself."""
        return replace(self, corpus=part.name, code_sets="none" if part.is_task else self.code_sets)

    @property
    def tokenizer(self) -> "TokenizerFile | None":
        """The tokenizer that exists already, or None."""
        kind, _, rest = self.vocab.partition(":")
        parts = rest.split(":", 3)
        if kind != "tokenizer" or len(parts) < 4 or not (parts[0].isdigit() and parts[1].isdigit()):
            return None
        return TokenizerFile(vocab_size=int(parts[0]), end=int(parts[1]), sha256=parts[2], path=parts[3])

    def normalised(self) -> "DataConfig":
        """The same data with the settings of parts that it does not have at their defaults."""
        kept = {"seq_len", "eval_sequences"} | ({"vocab", "code_sets"} if self.text is not None else set())
        kept |= {"answer_delay", "extrapolate"} if self.tasks else set()
        values = {name: getattr(self, name) for name in kept}
        for task in self.tasks:
            shape = TASKS[task]
            values |= {name: getattr(self, name) for name in shape.knobs}
            values[shape.depth] = write_depths(self.trained_depths(task))
        return DataConfig(corpus=write_corpus(self.parts), **values)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the order of the fields.

        Settings that came after the first eight are left out at their defaults, so that what was written down before
        they existed still names the same data.
        """
        plain = asdict(self)
        return {
            field.name: plain[field.name]
            for index, field in enumerate(fields(self))
            if index < _FIRST_FIELDS or plain[field.name] != field.default
        }


_FIRST_FIELDS = 8
"""Fields that plain data always has: up to `answer_delay`."""
