"""Texts of megabytes are redacted in slices: no slice is long, and what is found is what one search of the whole finds."""

import logging

import pytest

from treadle.redaction import Redactor, redacted_logger, remember, without_known

KEY = "-----BEGIN PRIVATE KEY-----\n" + "MIIcanary" * 2000 + "\n-----END PRIVATE KEY-----"


@pytest.mark.row("N10")
@pytest.mark.parametrize(
    "secret", ["token=canary-4711", KEY, "https://ada:canary-4711@example.org", '"password": "canary 4711"']
)
@pytest.mark.parametrize(
    "start", [0, 29_980, 60_010, *(pytest.param(at, marks=pytest.mark.soak) for at in (8_990, 20_990, 29_999, 30_000))]
)
def test_a_secret_anywhere_in_a_long_text_is_found(secret: str, start: int) -> None:
    shown = Redactor().text("key " * (start // 4) + " " * (start % 4) + secret + "\n" + "token " * 20_000)

    assert "canary" not in shown
    assert shown.count("[redacted]") == 1
    assert shown.endswith("token " * 20_000)


@pytest.mark.row("N10")
@pytest.mark.parametrize(
    "name", ["PassWord", "pa\u017f\u017fword", "author\u0130zation", "author\u0131zation", "to\u212aen"]
)
def test_a_field_is_found_however_the_letters_of_its_name_are_written(name: str) -> None:
    assert Redactor().text(f"{name}=canary-4711") == f"{name}=[redacted]"


@pytest.mark.row("N10")
def test_a_key_in_use_is_removed_from_megabytes() -> None:
    remember(["canary-of-slices", "canary-of-slices-and-more"])
    content = b"x" * 1_000_000 + b"canary-of-slices" * 2 + b"y" * 2_000_000 + b"canary-of-slices-and-more"

    assert without_known(content) == b"x" * 1_000_000 + b"[redacted]" * 2 + b"y" * 2_000_000 + b"[redacted]"


@pytest.mark.row("N10")
def test_what_is_logged_of_a_huge_error_is_bounded_and_redacted(caplog: pytest.LogCaptureFixture) -> None:
    logger = redacted_logger("treadle.test_long")
    try:
        raise ValueError("password=canary4711 " + "token \n" * 200_000) from RuntimeError("token=canary4711")
    except ValueError:
        with caplog.at_level(logging.WARNING):
            logger.warning("It failed: %s", "x" * 200_000, exc_info=True)

    assert len(caplog.text) < 100_000
    assert "canary" not in caplog.text
    assert "ValueError: password=[redacted]" in caplog.text
    assert "RuntimeError" in caplog.text


def test_a_log_can_be_written_whatever_an_exception_says(caplog: pytest.LogCaptureFixture):
    logger = redacted_logger("treadle.test_half_characters")
    try:
        raise ValueError("half \ud800")
    except ValueError:
        logger.warning("A tool said %s", "half \udfff", exc_info=True)

    assert caplog.text.encode("utf-8")
    assert "A tool said half \\udfff" in caplog.text
    assert "ValueError: half \\ud800" in caplog.text
