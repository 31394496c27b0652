"""Pieces: a text that arrives in very many pieces."""

from treadle.concurrency import Pieces


def test_a_million_pieces_are_one_text_and_few_objects():
    pieces = Pieces()
    for number in range(1_000_000):
        pieces.add(str(number % 10))

    assert "".join(pieces) == "0123456789" * 100_000
    assert len(pieces) < 20_000
