"""Payment: ask the bank once, and say what it said."""


class PaymentError(Exception):
    """The bank said no."""


def pay(amount: int, limit: int) -> str:
    if amount > limit:
        raise PaymentError("error: amount above the limit")
    return "paid"
