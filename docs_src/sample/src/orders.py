"""Orders: take one, price it, hand it to the warehouse."""

import logging

logger = logging.getLogger(__name__)


def place(order: dict[str, int], stock: dict[str, int]) -> int:
    for item, count in order.items():
        if stock.get(item, 0) < count:
            logger.error("Not enough %s in stock", item)
            raise ValueError(f"error: only {stock.get(item, 0)} of {item} left")
    return sum(order.values())
