"""Tokenizers and token files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Optional, Union

from . import _core

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ._runs import PathLike


class Tokenizer:
    """A tokenizer of a file (tokenizer.json, SentencePiece, tiktoken) or of a folder that keeps one.

    Threads may share it. Encoding releases the GIL.
    """

    def __init__(self, path: PathLike) -> None:
        self._held = _core.Tokenizer(os.fspath(path))

    @property
    def vocabulary(self) -> int:
        """One more than the largest id."""
        return self._held.vocabulary

    @property
    def end_of_text(self) -> Optional[int]:
        """The id that ends a document; None where the tokenizer has none."""
        found = self._held.end_of_text
        return None if found < 0 else found

    def encode(self, text: str, *, added_tokens: bool = False) -> NDArray[np.int32]:
        """Ids of a text: int32, shape (tokens,).

        added_tokens: contents of added tokens, such as <|endoftext|>, become those tokens; otherwise they are text.
        """
        return self._held.encode(text, added_tokens, False)

    def encode_document(self, text: str) -> NDArray[np.int32]:
        """Ids of a document as training reads it, the end-of-text token last: int32, shape (tokens,)."""
        return self._held.encode(text, False, True)

    def decode(self, ids: Union[Iterable[int], NDArray[Any]]) -> str:
        """The text of ids. Bytes that are no UTF-8 become U+FFFD. InputError for an id outside the vocabulary."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Union[Iterable[int], NDArray[Any]]) -> bytes:
        """The bytes of ids."""
        return self._held.decode([int(each) for each in ids])


class TokenFile:
    """A token file, PREFIX.bin with PREFIX.idx, mapped: nothing is copied until it is used.

    All sizes are checked as it is opened (InputError). Arrays cannot be written.
    """

    def __init__(self, prefix: PathLike) -> None:
        import numpy as np

        path, weights, documents, tokens, id_bytes, weight_bytes = _core.token_file_layout(os.fspath(prefix))
        self.path: str = path
        self.documents: int = documents
        self._begins: Optional[NDArray[np.int64]] = None
        self._prefix = os.fspath(prefix)
        kind: Any = "<u2" if id_bytes == 2 else "<i4"
        self.tokens: NDArray[Any] = (
            np.memmap(path, dtype=kind, mode="r", shape=(tokens,)) if tokens else np.empty(0, kind)
        )
        self.weights: Optional[NDArray[Any]] = None
        if weights:
            self.weights = np.memmap(weights, dtype="u1" if weight_bytes == 1 else "<f4", mode="r", shape=(tokens,))

    @property
    def begins(self) -> NDArray[np.int64]:
        """Position of the first token of each document, then the number of tokens: int64, shape (documents + 1,)."""
        if self._begins is None:
            self._begins = _core.token_file_begins(self._prefix)
        return self._begins

    def document(self, index: int) -> NDArray[Any]:
        """Ids of a document: a view, uint16 or int32, shape (tokens of it,)."""
        if not -self.documents <= index < self.documents:
            raise IndexError(index)
        index %= self.documents
        return self.tokens[self.begins[index] : self.begins[index + 1]]

    def sequences(self, length: int) -> NDArray[Any]:
        """All tokens cut into sequences: a view of shape (tokens // length, length)."""
        if length < 1:
            raise ValueError(f"length is {length}, accepted: 1 or more")
        count = len(self.tokens) // length
        return self.tokens[: count * length].reshape(count, length)

    def __len__(self) -> int:
        return self.documents

    def __repr__(self) -> str:
        return f"TokenFile({self._prefix!r}, documents={self.documents}, tokens={len(self.tokens)})"


def tokenizer(path: PathLike) -> Tokenizer:
    """The tokenizer of a file, or of a folder that keeps one."""
    return Tokenizer(path)


def dataset(prefix: PathLike) -> TokenFile:
    """The token file PREFIX.bin with PREFIX.idx, as NumPy views of the mapped files."""
    return TokenFile(prefix)
