"""Shipping: which parcel goes where."""


def label(name: str, street: str, town: str) -> str:
    return f"{name}\n{street}\n{town}"
