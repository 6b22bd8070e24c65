"""What can go wrong with a request, as one tree.

    PltError                 one clear line for the person, exit code 2
    ├── SpecError            the study file is wrong; carries file:line of every problem
    ├── StudyError           the study cannot be opened, continued or found
    ├── ResourceError        this machine or cluster does not have what was asked for
    └── ServiceError         a folder, port, tracking server or storage cannot be used
        └── DatabaseError    the studies' database; also an OSError, for whoever waits for a storage to come back

Every message says what is wrong, the value, and the remedy. Anything else that escapes is a fault of ours and keeps its
traceback.
"""


class PltError(Exception):
    """A request that cannot be met, said in one line."""

    exit_code = 2


class SpecError(PltError):
    """A study file that cannot be used; the message has one `file:line: ...` line per problem."""


class StudyError(PltError):
    """A study that does not exist, exists otherwise, or is being driven by another process."""


class ResourceError(PltError):
    """CPUs, GPUs or memory that no node has."""


class ServiceError(PltError):
    """A folder, port, storage or server that cannot be read, written or reached."""


class DatabaseError(ServiceError, OSError):
    """The database of the studies cannot be read or written, now or at all; `errno` says which."""

    def __init__(self, code: int, why: str, database: str, remedy: str) -> None:
        """`code` as of an operating system's error: ETIMEDOUT for what may pass. `database` is shown to people."""
        super().__init__(code, why, database)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.filename} cannot be used ({self.strerror}); {self.remedy}"

    def __reduce__(self) -> tuple[type["DatabaseError"], tuple[object, ...]]:
        return type(self), (self.errno, self.strerror, self.filename, self.remedy)
