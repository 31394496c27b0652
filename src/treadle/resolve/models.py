"""Models by name: adapters, drivers, keys and addresses. Adapters are imported on first use."""

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.drivers.native import NativeDriver
from treadle.errors import ConfigurationError, MissingCredential, UnknownModel, shown
from treadle.fields import checked, checked_but
from treadle.ports import (
    Capability,
    Driver,
    ErrorForm,
    HasCapabilities,
    Model,
    ModelFacts,
    Pricing,
    TextCalls,
    facts_of,
)
from treadle.providers.vendors import LOCAL_SERVERS, VENDORS, Vendor
from treadle.resolve.journals import SystemClock

if TYPE_CHECKING:
    from treadle.providers.http.endpoint import Timeouts
    from treadle.providers.payload import ThinkingTags
    from treadle.resolve.probing import ProbedModel

__all__ = [
    "check_model_name",
    "driver_for",
    "known_facts",
    "known_models",
    "local_servers",
    "offered_models",
    "probe_model",
    "resolve_model",
    "with_fallback",
]

_OTHERS = ("demo", "script")


def check_model_name(name: str) -> tuple[str, str]:
    """Return dialect and model of a name such as `openai-chat:gpt-5-mini`.

    Raises:
        UnknownModel: The name is invalid; the message lists what there is.
    """
    if not isinstance(name, str):
        raise UnknownModel(f"A model's name is a string such as 'openai-chat:NAME'; got {shown(name)}.")
    dialect, _, model = name.partition(":")
    is_known = dialect in VENDORS or dialect in _OTHERS
    if not is_known or (dialect != "demo" and not model):
        known = ", ".join([*(f"{vendor}:NAME" for vendor in VENDORS), "script:FILE", "demo"])
        meant = _meant(dialect, model)
        more = "`treadle models` lists the known ones." if "Did you mean" in meant else f"Write one of: {known}."
        raise UnknownModel(f"Unknown model {shown(name, 200)}.{meant} {more}")
    return dialect, model


def _meant(dialect: str, model: str) -> str:
    """Return the question what was meant, where a name is near to a known one or is alone."""
    if dialect in VENDORS:  # the model is missing
        return f" Name a model after the colon, as in '{dialect}:NAME'."
    if dialect == "script":
        return " Name a file after the colon, as in 'script:FILE'."
    names = {name: f"{name}{':' + model[:100] if model else ''}" for name in (*VENDORS, *_OTHERS)}
    if not model:  # the vendor may be missing
        names = {one.partition(":")[2]: one for one in reversed(list(known_models()))} | names
    near = difflib.get_close_matches(dialect[:100].casefold(), list(names), n=1, cutoff=0.75)
    return f" Did you mean '{names[near[0]]}'?" if near else ""


@checked_but("capabilities")
def resolve_model(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | Callable[[], str] | None = None,
    price: Pricing | None = None,
    stream: bool = True,
    options: Mapping[str, Any] | None = None,
    capabilities: Iterable[str] = (),
    headers: Mapping[str, str] | None = None,
    timeouts: "Timeouts | None" = None,
    facts: ModelFacts | None = None,
    thinking_tags: "ThinkingTags | None" = None,
    text_calls: TextCalls | None = None,
    error_form: ErrorForm | None = None,
) -> Model:
    """Return the model with a name.

    Example:
        resolve_model("openai-chat:gpt-5-mini", base_url="http://127.0.0.1:8080/v1", api_key="...")

    Args:
        base_url: The server's address (default: the vendor's variable, such as OPENAI_BASE_URL, or the vendor's address).
        api_key: The key (default: the vendor's variable, such as OPENAI_API_KEY). A server of your own needs none. For Azure, Vertex and
            Bedrock it may be a function that returns a bearer token, called in a thread before each request.
        price: Its price per million tokens, such as Price(input=, output=) (default: the known price of the vendor's model, see
            `treadle models`, or its list price if the extra `prices` is installed; an unknown cost is null).
        stream: Whether answers are streamed.
        options: Further fields of the request body, such as temperature.
        capabilities: What is special about the model: `no_tools` if it cannot call tools and is driven by ReAct,
            `json_schema` if the server can enforce a schema for its answers.
        headers: More headers for each request, which replace those that the adapter would send.
        facts: What the model can do, such as ModelFacts(window=32_768, inputs=["text"]). It overrides what is known about the
            vendor's model. Nothing is known about a server of your own.
        timeouts: How long one request may take, such as Timeouts(first_byte_seconds=600) for a slow server (default: two minutes to
            the first byte, 15 for a server on this machine).
        thinking_tags: Reasoning that the server leaves in the text: `both` for what is between two tags at its beginning, such as
            `<think>` and `</think>` (default); `closing` where the opening one may be missing (default for local servers); `off`.
        text_calls: Calls that the server leaves in the text: `run` carries them out like any others, `tell` tells the model that they did
            not arrive, `off` takes them as the answer (default: those in a model's markup run; of bare JSON the model is told, unless the
            server or model is known for it).
        error_form: What the model reads of a tool's error: the `sentence` alone, or all fields as `json` (default: a sentence for small
            models).

    Raises:
        UnknownModel: No adapter has the name.
        MissingCredential: The vendor needs a key, and none is set.
        ConfigurationError: A capability is invalid, or the address, an option, a header or a time limit cannot be used.
    """
    dialect, model = check_model_name(name)
    is_at_cloud = dialect in VENDORS and bool(VENDORS[dialect].cloud_endpoint)
    if callable(api_key) and not is_at_cloud:
        raise ConfigurationError(f"api_key must be a string; got {shown(api_key)}.")
    special = _capabilities(capabilities)
    own, known = facts or ModelFacts(), ModelFacts()
    probed = _probed(dialect, model, base_url)
    if probed is not None:
        own = own.over(probed.facts)
        text_calls = text_calls or ("run" if probed.calls == "text" else None)
    if error_form is not None:
        own = msgspec.structs.replace(own, error_form=error_form)
    found: Model
    match dialect:
        case "demo":
            found = _load("treadle.mock.demo:DemoModel")()
        case "script":
            found = _load("treadle.mock.model:scripted_model")(model, price or own.price)
        case _:
            given = {
                "timeouts": timeouts or _timeouts(dialect, own),
                "thinking_tags": thinking_tags,
                "text_calls": text_calls,
            }
            text = {"stream": stream, "headers": headers, **{key: one for key, one in given.items() if one is not None}}
            found, known = _over_http(
                dialect, model, base_url, api_key, price or own.price, options=options or {}, **text
            )
            special |= _server_capabilities(dialect, probed)
    known = own.over(known)
    if known.tools is False:
        special |= {Capability.NO_TOOLS}
    if not special and known == ModelFacts():
        return found
    capable: Callable[..., Model] = _load("treadle.providers.capable:CapableModel")
    return capable(found, special, facts=known)


def driver_for(model: Model) -> Driver:
    """Return the driver for a model's capabilities: native, unless the model cannot call tools, or is a small one whose server enforces schemas.

    Example:
        driver_for(resolve_model("ollama:gemma3", capabilities=["no_tools"]))
    """
    special = model.capabilities if isinstance(model, HasCapabilities) else frozenset[Capability]()
    has_schemas = Capability.JSON_SCHEMA in special
    if Capability.NO_TOOLS not in special and not (has_schemas and facts_of(model).small):
        return NativeDriver()
    from treadle.drivers.react import ReActDriver

    return ReActDriver(output="json_schema" if has_schemas else "json")


def _timeouts(dialect: str, facts: ModelFacts) -> "Timeouts | None":
    """Return how long a server of one's own may take, which may read a prompt for minutes; None for the default."""
    if dialect not in LOCAL_SERVERS:
        return None
    found: Timeouts = _load("treadle.providers.http.endpoint:LOCAL_TIMEOUTS")
    return msgspec.structs.replace(found, prompt_tokens_per_second=facts.prompt_tokens_per_second)


# --- Probed: what was found out about the models of servers of one's own.


def _probed(dialect: str, model: str, base_url: str | None) -> "ProbedModel | None":
    """Return what was found out about a model; None where it was not probed."""
    if dialect not in LOCAL_SERVERS:
        return None
    url, _ = reach(dialect, VENDORS[dialect], base_url, None)
    found: ProbedModel | None = import_module("treadle.resolve.probing").kept(f"{dialect}:{model}", url)
    return found


def _server_capabilities(dialect: str, probed: "ProbedModel | None") -> frozenset[Capability]:
    """Return what is special about a vendor's models, and what a probe has shown."""
    schemas = None if probed is None else probed.schemas
    own = VENDORS[dialect].capabilities
    if schemas is None:
        return own
    return own | {Capability.JSON_SCHEMA} if schemas else own - {Capability.JSON_SCHEMA}


@checked
async def probe_model(name: str, *, base_url: str | None = None, api_key: str | None = None) -> "ProbedModel":
    """Find out what a model on a server of your own can do, and keep it: `resolve_model` knows it from then on.

    The server is asked for what it says of itself: the window, the slots, whether its template has tools. Then two small requests show
    whether it reads calls, whether it enforces a schema, and how fast it reads a prompt.

    Example:
        await probe_model("ollama:qwen3")

    Args:
        name: A model of `llamacpp:`, `lmstudio:`, `ollama:` or `vllm:`.
        base_url: The server's address (default: the server's variable, such as OLLAMA_BASE_URL, or its usual address).
        api_key: The key, where the server was started with one.

    Raises:
        ConfigurationError: It is not a model of a server of your own.
        ModelError: The server does not answer.
    """
    dialect, model = check_model_name(name)
    if dialect not in LOCAL_SERVERS:
        raise ConfigurationError(
            f"{name!r:.200} is not on a server of your own. Probe a model of {', '.join(f'{one}:' for one in LOCAL_SERVERS)}"
        )
    probing = import_module("treadle.resolve.probing")
    url, key = reach(dialect, VENDORS[dialect], base_url, api_key)
    asked = resolve_model(name, base_url=url, api_key=key, options={"temperature": 0, "max_tokens": 200})
    shown = await probing.probe(asked)
    told = await probing.ask_server(dialect, model, url, api_key=key)
    found: ProbedModel = probing.merged(told, shown)
    await probing.keep(name, url, found)
    return found


def _capabilities(names: Iterable[str]) -> frozenset[Capability]:
    if isinstance(names, Mapping):
        raise ConfigurationError(f"capabilities is a list of {', '.join(Capability)}; got {shown(names)}.")
    try:
        return frozenset(map(Capability, [names] if isinstance(names, str) else names))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"capabilities is a list of {', '.join(Capability)}; {error}.") from error


def _over_http(
    dialect: str,
    model: str,
    base_url: str | None,
    api_key: str | Callable[[], str] | None,
    price: Pricing | None,
    *,
    options: Mapping[str, Any],
    **shared: Any,  # whatever all adapters take alike
) -> tuple[Model, ModelFacts]:
    """Make the adapter of a vendor's or one's own server. Return what is known of the model, too: nothing of one's own."""
    # A name may serve several families of models in different dialects.
    families = VENDORS[dialect].families
    vendor = VENDORS[next((row for start, row in families.items() if model.startswith(start)), dialect)]
    every = {**vendor.options, **options}
    if vendor.cloud_endpoint:
        return _at_a_cloud(dialect, model, vendor, base_url, api_key, price, options=every, **shared)
    url, key = reach(dialect, vendor, base_url, str(api_key) if api_key else None)
    is_vendors = url == vendor.address and dialect not in LOCAL_SERVERS
    known = _known(dialect, model) if is_vendors else ModelFacts()
    price = known.price if price is None else price
    if (family := import_module("treadle.providers.known").family_of(model)) is not None:
        known, shared = known.over(family.facts), {"text_calls": family.text_calls, **shared}
    adapter = _load(vendor.adapter)
    return adapter(model, base_url=url, api_key=key, price=price, options=every, **{**vendor.quirks, **shared}), known


def _at_a_cloud(
    dialect: str,
    model: str,
    vendor: Vendor,
    base_url: str | None,
    api_key: str | Callable[[], str] | None,
    price: Pricing | None,
    *,
    options: Mapping[str, Any],
    **shared: Any,  # whatever all adapters take alike
) -> tuple[Model, ModelFacts]:
    """Make the adapter of a model at a cloud's address, which finds the address and who asks there."""
    from treadle.providers.clouds.fetching import Asked

    given = base_url or os.environ.get(vendor.address_variable)
    reached = _load(vendor.cloud_endpoint)(
        Asked(
            name=dialect,
            model=model,
            base_url=_checked_url(given) if given else None,
            api_key=api_key or _key_of(vendor),
            stream=shared["stream"],
            options=options,
            headers=shared["headers"] or {},
            environment=os.environ,
        )
    )
    known = _known(dialect, model) if reached.is_vendors else ModelFacts()
    adapter = _load(vendor.adapter)
    made = adapter(
        model,
        base_url=reached.base_url,
        api_key=reached.api_key,
        price=known.price if price is None else price,
        options=reached.options,
        cloud_endpoint=reached.cloud_endpoint,
        **shared,
    )
    return made, known


def local_servers() -> Mapping[str, str]:
    """Return the addresses of model servers on this machine, by the name that their models' names begin with.

    Example:
        local_servers()["ollama"]  # "http://127.0.0.1:11434/v1", unless OLLAMA_BASE_URL names another
    """
    vendors = {name: VENDORS[name] for name in LOCAL_SERVERS}
    return {name: os.environ.get(vendor.address_variable) or vendor.address for name, vendor in vendors.items()}


@checked
def with_fallback(*models: Model, failures: int = 3, open_seconds: float = 30.0) -> Model:
    """Return one model made of several: the first healthy one answers, and one that keeps failing is not used for a while.

    Example:
        with_fallback(resolve_model("anthropic:claude-sonnet-4-5"), resolve_model("openai:gpt-5-mini"))

    Args:
        failures: Failed attempts in a row after which a model is not used.
        open_seconds: For how long it is not used; then one attempt tries it again.
    """
    fallback: Callable[..., Model] = _load("treadle.providers.fallback:FallbackModel")
    return fallback(models, clock=SystemClock(), failures=failures, open_seconds=open_seconds)


def known_facts(name: str) -> ModelFacts:
    """Return what is known about a vendor's model; unknown facts are None.

    Example:
        known_facts("anthropic:claude-sonnet-4-5").window  # 200000

    Raises:
        UnknownModel: No adapter answers to the name.
    """
    dialect, model = check_model_name(name)
    return _known(dialect, model) if model else ModelFacts()


def known_models() -> Mapping[str, ModelFacts]:
    """Return what is known about models, by name; `treadle models` lists it."""
    found: Mapping[str, ModelFacts] = import_module("treadle.providers.known").known_models()
    return found


def _known(dialect: str, model: str) -> ModelFacts:
    """Return what the data file knows of a model, and its list price where the file has none and the extra `prices` does."""
    facts: ModelFacts = import_module("treadle.providers.known").known_facts(dialect, model)
    if facts.price is not None:
        return facts
    price: Pricing | None = import_module("treadle.providers.prices").list_price(dialect, model)
    return facts if price is None else msgspec.structs.replace(facts, price=price)


def _load(place: str) -> Any:
    """Import an adapter on first use."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def reach(dialect: str, vendor: Vendor, base_url: str | None, api_key: str | None) -> tuple[str, str | None]:
    """Return the address and the key of a vendor, or of a server of one's own. A server of one's own needs no key; the vendor's does."""
    given = base_url or os.environ.get(vendor.address_variable)
    url = _checked_url(given) if given else _own_address(dialect, vendor)
    names = _key_variables(vendor)
    key = api_key or _key_of(vendor)
    if key is None and vendor.needs_key and (not given or url == vendor.address):
        raise MissingCredential(
            f"{' or '.join(names)} is not set. Set it, pass api_key=, or name a server of your own with base_url "
            "(--base-url). `demo` needs neither."
        )
    return url, key


def _own_address(dialect: str, vendor: Vendor) -> str:
    """Return the vendor's address, with what the environment says of the account in it."""
    named = re.findall(r"{(\w+)}", vendor.address)
    missing = [name for name in named if not os.environ.get(name)]
    if missing or not vendor.address:
        others = [vendor.address_variable, "base_url"]
        raise ConfigurationError(f"{dialect} has no address of its own: set {', or '.join([*missing, *others])}.")
    address = vendor.address
    for name in named:
        address = address.replace(f"{{{name}}}", os.environ[name].strip().rstrip("/"))
    return _checked_url(address if "://" in address else f"https://{address}")


def _key_variables(vendor: Vendor) -> list[str]:
    return [name for name in (vendor.key_variable, vendor.other_key_variable) if name]


def _key_of(vendor: Vendor) -> str | None:
    return next((os.environ[name] for name in _key_variables(vendor) if os.environ.get(name)), None)


def _checked_url(url: str) -> str:
    if not url.startswith(("http://", "https://")) or not url.partition("://")[2].strip("/"):
        raise ConfigurationError("The base URL is invalid: write it as http://HOST:PORT/v1 or https://HOST/v1.")
    return url.rstrip("/")


# --- Offers: the models that a key or a server offers, by name, with what is known of each.


@checked
async def offered_models(
    vendor: str, *, base_url: str | None = None, api_key: str | None = None
) -> Mapping[str, ModelFacts]:
    """Ask a server which models it offers. Return what is known of each by its name, such as `openai:gpt-5-mini`: what the server says, and
    for the vendor's own address what Treadle knows besides.

    Example:
        await offered_models("ollama")

    Args:
        vendor: The name before the colon of a model's name.
        base_url: The server's address; else the vendor's variable (such as OPENAI_BASE_URL), else the vendor.
        api_key: The key; else the vendor's variable (such as OPENAI_API_KEY).

    Raises:
        UnknownModel: No vendor has that name.
        MissingCredential: The vendor needs a key and none is set.
        ConfigurationError: The vendor lists its models elsewhere, or the address cannot be used.
        ModelError: There was no answer, or the server refused.
    """
    name = vendor.rstrip(":")
    if name not in VENDORS:
        raise UnknownModel(f"Unknown vendor {shown(vendor, 200)}. Write one of: {', '.join(VENDORS)}.")
    row = VENDORS[name]
    if row.cloud_endpoint:
        raise ConfigurationError(
            f"{name} does not list its models where they are asked: see the cloud's own console or command line."
        )
    url, key = reach(name, row, base_url, api_key)
    listings = import_module("treadle.providers.http.listings")
    listing = import_module(f"{row.adapter.partition(':')[0]}.request").LISTING
    found: dict[str, ModelFacts] = await listings.fetch_models(listing, url, api_key=key, key_variable=row.key_variable)
    is_vendors = url == row.address and name not in LOCAL_SERVERS
    names = {f"{name}:{model}": facts for model, facts in found.items()}
    return {one: facts.over(known_facts(one)) if is_vendors else facts for one, facts in names.items()}
