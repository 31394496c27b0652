"""Tasks: a small shop with seven tools, and what each task must have done there. Knows no library.

A task is judged by what its tools did and by the words of the answer, never by what a library says of itself. Half of the tasks are kept
apart: prompts are tuned on the others alone.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

INSTRUCTIONS = "You work in a shop. Use the tools where they help. When all is done, answer in one sentence."
MOST_REQUESTS = 6
"""Requests of one task; every library is given this limit in its own form."""


class Refused(Exception):
    """What a tool says where it cannot do what was asked."""


class Entry(NamedTuple):
    """One thing that a tool did."""

    tool: str
    arguments: Mapping[str, Any]


class Shop:
    """The world of one run, and the ledger of what was done in it."""

    def __init__(self) -> None:
        self.ledger: list[Entry] = []
        self.refused: list[Entry] = []
        self.products = {
            "umbrella": (14, 18.5),
            "lamp": (9, 39.5),
            "chair": (31, 85.0),
            "desk": (6, 249.0),
            "mug": (40, 7.25),
        }
        self.orders = {4107: ("chair", 4, "packed"), 5512: ("desk", 1, "open"), 6003: ("mug", 24, "delivered")}

    def tools(self) -> list[Callable[..., Any]]:
        """Return the tools as plain functions."""

        def get_stock(product: str) -> int:
            """Return how many pieces of a product are in stock.

            Args:
                product: The product's name, such as lamp.
            """
            return self._product(Entry("get_stock", {"product": product}))[0]

        def get_price(product: str) -> float:
            """Return the price of one piece of a product, in euros.

            Args:
                product: The product's name, such as lamp.
            """
            return self._product(Entry("get_price", {"product": product}))[1]

        def get_order(order: int) -> str:
            """Return the product, the quantity and the state of an order.

            Args:
                order: The order's number.
            """
            product, quantity, state = self._order(Entry("get_order", {"order": order}))
            return f"product: {product}, quantity: {quantity}, state: {state}"

        def place_order(product: str, quantity: int) -> str:
            """Order pieces of a product.

            Args:
                product: The product's name, such as lamp.
                quantity: How many pieces.
            """
            entry = Entry("place_order", {"product": product, "quantity": quantity})
            name = self._name(entry)
            if name == "mug" and quantity % 6:
                self._refuse(entry, f"Mugs are sold in sixes: the quantity cannot be {quantity}, only a multiple of 6.")
            return self._done(entry, f"Ordered {quantity} of {name}.")

        def cancel_order(order: int) -> str:
            """Cancel an order.

            Args:
                order: The order's number.
            """
            entry = Entry("cancel_order", {"order": order})
            self._order(entry)
            return f"Order {order} is cancelled."

        def send_message(to: str, text: str) -> str:
            """Send a message to a person.

            Args:
                to: The person's name.
                text: The whole message.
            """
            return self._done(Entry("send_message", {"to": to, "text": text}), f"Sent to {to}.")

        def set_reminder(day: Literal["mon", "tue", "wed", "thu", "fri"], priority: int, text: str) -> str:
            """Set a reminder.

            Args:
                day: The day of the week.
                priority: From 1 (low) to 3 (high).
                text: What to be reminded of.
            """
            entry = Entry("set_reminder", {"day": day, "priority": priority, "text": text})
            if priority not in (1, 2, 3):
                self._refuse(entry, f"The priority must be 1, 2 or 3, not {priority}.")
            return self._done(entry, f"Reminder set for {day}.")

        return [get_stock, get_price, get_order, place_order, cancel_order, send_message, set_reminder]

    def _product(self, entry: Entry) -> tuple[int, float]:
        name = self._name(entry)
        return self._done(entry, self.products[name])

    def _name(self, entry: Entry) -> str:
        said = str(entry.arguments["product"])
        name = said.strip().lower().removesuffix("s")
        if name not in self.products:
            self._refuse(entry, f"There is no product {said!r}. The products are {', '.join(self.products)}.")
        return name

    def _order(self, entry: Entry) -> tuple[str, int, str]:
        number = entry.arguments["order"]
        if number not in self.orders:
            self._refuse(entry, f"There is no order {number!r}.")
        return self._done(entry, self.orders[number])

    def _refuse(self, entry: Entry, why: str) -> None:
        self.refused.append(entry)
        raise Refused(why)

    def _done(self, entry: Entry, value: Any) -> Any:
        self.ledger.append(entry)
        return value


ACTS = ("place_order", "cancel_order", "send_message", "set_reminder")
Fact = tuple[Any, ...]
"""A tool and the values that its call must have; a value that is a text in small letters need only be contained."""


class Task(NamedTuple):
    """One task, and when it is done."""

    name: str
    kind: Literal["one", "two", "parallel", "result", "correction", "none"]
    is_held_out: bool
    text: str
    acts: Sequence[Fact] = ()
    """All changes that must have been made, in any order, and no other."""
    reads: Sequence[Fact] = ()
    """What must have been looked up, at least."""
    answer: Sequence[str] = ()
    """What the answer must say: regular expressions, without regard to case."""

    def is_done(self, shop: Shop, answer: str) -> bool:
        acts = [entry for entry in shop.ledger if entry.tool in ACTS]
        open_acts = list(acts)
        for fact in self.acts:
            found = next((entry for entry in open_acts if fits(entry, fact)), None)
            if found is None:
                return False
            open_acts.remove(found)
        if open_acts or (self.kind == "none" and (shop.ledger or shop.refused)):
            return False
        has_read = all(any(fits(entry, fact) for entry in shop.ledger) for fact in self.reads)
        said = answer.replace(",", "")
        return has_read and bool(said.strip()) and all(re.search(one, said, re.IGNORECASE) for one in self.answer)


def fits(entry: Entry, fact: Fact) -> bool:
    tool, *values = fact
    given = list(entry.arguments.values())
    return entry.tool == tool and len(given) == len(values) and all(map(_fits, given, values))


def _fits(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return wanted in str(given).lower()
    return not isinstance(given, bool) and given == wanted


def _number(text: str) -> str:
    more = "0*" if "." in text else r"(\.0+)?"
    return rf"(?<![\d.]){re.escape(text)}{more}(?!\.?\d)"


TASKS = (
    Task("stock", "one", False, "How many umbrellas are in stock?", (), [("get_stock", "umbrella")], [_number("14")]),
    Task("cancel", "one", False, "Cancel order 5512.", [("cancel_order", 5512)]),
    Task("price", "one", True, "What does one lamp cost?", (), [("get_price", "lamp")], [_number("39.5")]),
    Task("message", "one", True, "Send Maria this message: The lamp has arrived.", [("send_message", "maria", "the lamp has arrived")]),
    Task("cancel_then_order", "two", False, "Cancel order 5512. Then order 3 lamps.",
         [("cancel_order", 5512), ("place_order", "lamp", 3)]),
    Task("price_and_stock", "two", False, "What does a desk cost, and how many desks are in stock?", (),
         [("get_price", "desk"), ("get_stock", "desk")], [_number("249"), _number("6")]),
    Task("order_then_message", "two", True, "Order 2 chairs. Then send Tom this message: Two chairs are on their way.",
         [("place_order", "chair", 2), ("send_message", "tom", "two chairs are on their way")]),
    Task("state_and_price", "two", True, "What is the state of order 4107, and what does a mug cost?", (),
         [("get_order", 4107), ("get_price", "mug")], ["packed", _number("7.25")]),
    Task("three_stocks", "parallel", False, "How many umbrellas, how many lamps and how many mugs are in stock?", (),
         [("get_stock", "umbrella"), ("get_stock", "lamp"), ("get_stock", "mug")], [_number("14"), _number("9"), _number("40")]),
    Task("three_cancels", "parallel", False, "Cancel the orders 4107, 5512 and 6003.",
         [("cancel_order", 4107), ("cancel_order", 5512), ("cancel_order", 6003)]),
    Task("three_prices", "parallel", True, "What do a lamp, a chair and a desk cost?", (),
         [("get_price", "lamp"), ("get_price", "chair"), ("get_price", "desk")], [_number("39.5"), _number("85"), _number("249")]),
    Task("three_messages", "parallel", True, "Send Anna, Ben and Carla the message: Lunch is at noon.",
         [("send_message", "anna", "lunch is at noon"), ("send_message", "ben", "lunch is at noon"), ("send_message", "carla", "lunch is at noon")]),
    Task("price_of_ordered", "result", False, "Which product is order 4107 for, and what does one piece of that product cost?", (),
         [("get_order", 4107), ("get_price", "chair")], ["chair", _number("85")]),
    Task("order_again", "result", False, "Look up order 6003, and place a new order for the same product and the same quantity.",
         [("place_order", "mug", 24)], [("get_order", 6003)]),
    Task("as_many_lamps", "result", True, "Look up how many desks are in stock, and order exactly as many lamps.",
         [("place_order", "lamp", 6)], [("get_stock", "desk")]),
    Task("price_in_message", "result", True, "Look up the price of a lamp, and send it to Maria in a message.",
         [("send_message", "maria", "39.5")], [("get_price", "lamp")]),
    Task("sixes", "correction", False, "Order 7 mugs. If you cannot order 7, order 12.", [("place_order", "mug", 12)]),
    Task("high_priority", "correction", False, "Set a reminder with high priority for Friday: Call Ben.",
         [("set_reminder", "fri", 3, "call ben")]),
    Task("office_chairs", "correction", True, "How many office chairs are in stock?", (), [("get_stock", "chair")], [_number("31")]),
    Task("low_priority", "correction", True, "Set a reminder with low priority for Monday: Water the plants.",
         [("set_reminder", "mon", 1, "water the plants")]),
    Task("product", "none", False, "What is 7 times 8?", (), (), [_number("56")]),
    Task("french", "none", False, "How do you say 'good morning' in French?", (), (), ["bonjour"]),
    Task("capital", "none", True, "What is the capital of France?", (), (), ["paris"]),
    Task("opposite", "none", True, "What is the opposite of the word 'hot'?", (), (), ["cold|cool"]),
)  # fmt: skip
