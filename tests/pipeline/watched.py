"""Let tests look on, or step in, where chunks are decoded or sent, which no counter shows."""

from collections.abc import Callable
from typing import Any

import pytest

from ucxstore.pipeline.decode import Decoding
from ucxstore.pipeline.encode import Encoding

type Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


def wrap_decoding(monkeypatch: pytest.MonkeyPatch, wrap: Wrap) -> None:
    """Put what `wrap` makes of it in the place of what decodes the value of one chunk."""
    monkeypatch.setattr(Decoding, "_decode", wrap(Decoding._decode))


def wrap_sending(monkeypatch: pytest.MonkeyPatch, wrap: Wrap) -> None:
    """Put what `wrap` makes of it in the place of what sends the values of a group."""
    monkeypatch.setattr(Encoding, "_send", wrap(Encoding._send))
