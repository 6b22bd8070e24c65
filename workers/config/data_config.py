"""What a trial is trained and evaluated on: a text corpus, or a generated task."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from workers.config.checks import require

BYTES_VOCAB_SIZE = 257
"""256 byte values, then the document separator (id 256)."""


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
    """One corpus or task, its tokenizer and the sequence length."""

    corpus: str = "stdlib"
    """`stdlib`, `files:GLOB`, or the generated task `phop`."""
    vocab: str = "bytes"
    """`bytes`, or `bpe:N` for a byte-level BPE of N tokens trained on the training split, or a tokenizer that exists,
    `tokenizer:N:E:HASH:PATH`: N ids, the one that ends a text, 16 digits of the file's SHA-256, the file. Ignored by
    tasks."""
    seq_len: int = 256
    """Slots per training sequence, S."""
    eval_sequences: int = 64
    """Held-out sequences that one evaluation scores."""
    hops: int = 2
    """p-hop induction: p."""
    alphabet: int = 4
    """p-hop induction: number of symbols, V."""
    labels: Literal["dense", "last"] = "dense"
    """p-hop induction: a label at every slot where the p-hop value exists, or at the last slot only."""
    answer_delay: int = 0
    """p-hop induction: filler tokens between the query and its answer (CLP moves depth to later slots)."""

    def __post_init__(self) -> None:
        """Refuse values that no data set can have."""
        require(
            self.is_task or self.corpus == "stdlib" or self.corpus.startswith("files:"),
            "corpus",
            self.corpus,
            "stdlib, files:GLOB or phop",
        )
        require(self.seq_len >= 2, "seq_len", self.seq_len, "2 or more slots")
        require(self.eval_sequences >= 1, "eval_sequences", self.eval_sequences, "1 or more")
        require(self.hops >= 1, "hops", self.hops, "1 or more")
        require(self.alphabet >= 2, "alphabet", self.alphabet, "2 or more symbols")
        require(self.labels in ("dense", "last"), "labels", self.labels, "dense or last")
        require(0 <= self.answer_delay < self.seq_len, "answer_delay", self.answer_delay, "from 0 to below seq_len")
        if self.is_task:
            most = (self.task_symbols - 1) // 2
            require(self.hops <= most, "hops", self.hops, f"at most {most} in {self.task_symbols} symbols")
        if not self.is_task and self.vocab != "bytes" and self.tokenizer is None:
            require(
                self.bpe_size is not None and 257 <= self.bpe_size <= 65536,
                "vocab",
                self.vocab,
                "bytes, or bpe:N with N from 257 to 65536",
            )

    @property
    def is_task(self) -> bool:
        """Whether the data is generated rather than read."""
        return self.corpus == "phop"

    @property
    def task_symbols(self) -> int:
        """Symbols of a p-hop sequence, fillers left out."""
        if self.labels == "dense":
            return self.seq_len // (self.answer_delay + 1)
        return self.seq_len - self.answer_delay

    @property
    def bpe_size(self) -> int | None:
        """N of `bpe:N`, or None."""
        head, _, size = self.vocab.partition(":")
        return int(size) if head == "bpe" and size.isdigit() else None

    @property
    def vocab_size(self) -> int:
        """Token ids the model must know."""
        if self.is_task:
            return self.alphabet + (1 if self.answer_delay else 0)
        if self.tokenizer is not None:
            return self.tokenizer.vocab_size
        return self.bpe_size or BYTES_VOCAB_SIZE

    @property
    def tokenizer(self) -> "TokenizerFile | None":
        """The tokenizer that exists already, or None."""
        kind, _, rest = self.vocab.partition(":")
        parts = rest.split(":", 3)
        if kind != "tokenizer" or len(parts) < 4 or not (parts[0].isdigit() and parts[1].isdigit()):
            return None
        return TokenizerFile(vocab_size=int(parts[0]), end=int(parts[1]), sha256=parts[2], path=parts[3])

    def normalised(self) -> "DataConfig":
        """The same data with the settings of the other kind (task or corpus) at their defaults."""
        if self.is_task:
            return DataConfig(
                corpus=self.corpus,
                seq_len=self.seq_len,
                eval_sequences=self.eval_sequences,
                hops=self.hops,
                alphabet=self.alphabet,
                labels=self.labels,
                answer_delay=self.answer_delay,
            )
        return DataConfig(
            corpus=self.corpus, vocab=self.vocab, seq_len=self.seq_len, eval_sequences=self.eval_sequences
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        return asdict(self)
