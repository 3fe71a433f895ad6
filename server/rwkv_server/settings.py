"""engine.yaml, version 1: what the operator tells an engine pod, as frozen values.

The operator renders this file and never imports this module; a contract test parses what it
renders. Unknown keys are refused, so that a newer operator's field can't be ignored in silence.
No defaults here: the operator fills them in, in one place.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import pydantic
import yaml
from packaging.version import InvalidVersion, Version
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from rwkv_server.errors import ConfigInvalid


def _absolute(path: str) -> str:
    if not path.startswith("/"):
        raise ValueError("an absolute path")
    return path


def _is_below(path: str, folder: str) -> bool:
    parts = Path(path).parts
    return ".." not in parts and Path(folder) in Path(path).parents


def _version(text: str) -> str:
    try:
        Version(text)
    except InvalidVersion:
        raise ValueError("a version as PEP 440 writes it") from None
    return text


Port = Annotated[int, Field(ge=1, le=65535)]
Positive = Annotated[int, Field(ge=1)]
Name = Annotated[str, Field(min_length=1, max_length=253)]
FileName = Annotated[str, Field(pattern=r"^[\w][\w.\-]*$", max_length=200)]
AbsolutePath = Annotated[str, AfterValidator(_absolute)]
PackageVersion = Annotated[str, AfterValidator(_version)]
DottedVersion = Annotated[str, Field(pattern=r"^\d+(\.(\d+|(?i:rc)\d+))*$", max_length=64)]


class _Section(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        protected_namespaces=(),
    )


Checked = TypeVar("Checked", bound=_Section)


class Deployment(_Section):
    """The RWKVDeployment this pod belongs to."""

    namespace: Name
    name: Name


class Download(_Section):
    """What `rwkv-server fetch` brings from a hub before the engine starts.

    Attributes:
        files: exact names to choose the weights by, where a repository holds several.
        cache_dir: the volume that the model's folder lies on.
    """

    repo: Annotated[str, Field(pattern=r"^[\w.\-]+/[\w.\-]+$", max_length=200)]
    revision: Annotated[str, Field(pattern=r"^[\w./\-]+$", max_length=200)]
    offline: bool
    cache_dir: AbsolutePath
    files: Annotated[list[FileName], Field(max_length=16)]


HUBS = ("huggingFace", "modelScope")


class Model(_Section):
    """Where the weights are and how to serve them."""

    served_name: Name
    source: Literal["bundled", "huggingFace", "modelScope", "persistentVolumeClaim", "image"]
    path: AbsolutePath
    format: Literal["Auto", "SafeTensors", "PTH"]
    dtype: Literal["Auto", "Float32", "BFloat16", "Float16"]
    max_model_len: Positive
    download: Download | None = None

    @model_validator(mode="after")
    def _check_download(self) -> Model:
        if (self.source in HUBS) != (self.download is not None):
            raise ValueError(f"download for the sources {' and '.join(HUBS)}, and only for them")
        if self.download and not _is_below(self.path, self.download.cache_dir):
            raise ValueError("path below download.cacheDir")
        return self


class AtLeast(_Section):
    """A lower bound on a dotted version."""

    at_least: DottedVersion


class Runtime(_Section):
    """What must be true inside the container, as the stack's `runtimeRequirements` say it.

    Copied from the stack as it is, so everything is optional here: what is absent isn't required.

    Attributes:
        cuda: the highest CUDA version that the driver runs.
        architecture: in Kubernetes' names.
        packages: Python distributions, each at one exact version.
    """

    chip: list[Name] = []
    driver: AtLeast | None = None
    cann: DottedVersion | None = None
    cuda: AtLeast | None = None
    compute_capability: AtLeast | None = None
    architecture: list[Literal["amd64", "arm64"]] = []
    packages: dict[str, PackageVersion] = {}


Quantization = Literal["None", "Int8", "Int4", "W8", "W4"]


class Supports(_Section):
    """What the stack allows beyond the ordinary; nothing, if it says nothing."""

    quantization: list[Quantization]


class Stack(_Section):
    """The hardware stack that this pod was made for."""

    name: Name
    vendor: Literal["cpu", "nvidia", "ascend"]
    runtime: Runtime
    supports: Supports


class Engine(_Section):
    """vLLM's own settings."""

    tensor_parallel_size: Positive
    max_num_seqs: Positive
    max_num_batched_tokens: Positive
    quantization: Quantization
    extra_args: list[str]


class S3(_Section):
    """A bucket for saved states.

    Attributes:
        prefix: what the names of all objects begin with; empty for the bucket's root.
        endpoint: None is Amazon's of the region.
        credentials_path: a folder with the files `accessKeyId` and `secretAccessKey`.
    """

    bucket: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]$")]
    prefix: Annotated[str, Field(pattern=r"^([\w.\-]+(/[\w.\-]+)*)?$", max_length=200)]
    endpoint: Annotated[str, Field(pattern=r"^https?://[^/?#@\s]+$", max_length=253)] | None
    region: Annotated[str, Field(pattern=r"^[a-z0-9\-]+$", max_length=63)]
    credentials_path: AbsolutePath


class Peers(_Section):
    """Where the engines of the deployment find each other.

    Attributes:
        url: of an engine's HTTP port, with `{ordinal}` for its number.
        ordinals: engines have numbers below that.
    """

    url: Annotated[str, Field(pattern=r"^http://[^/]*\{ordinal\}[^/]*$", max_length=500)]
    ordinals: Positive

    def url_of(self, ordinal: int) -> str:
        """The address of one engine."""
        return self.url.replace("{ordinal}", str(ordinal))


class State(_Section):
    """Where saved states are kept, how long and how many.

    Attributes:
        path: the folder of every store but S3.
        hot_bytes: memory for snapshots, in shared memory.
        open_access: nobody is asked for a key, so nobody may list or export.
        automatic_reuse: Memory keeps what it finds by itself in that memory only, Durable also
            writes it to the store.
    """

    store: Literal["perPod", "ephemeral", "persistentVolumeClaim", "s3"]
    path: AbsolutePath | None
    s3: S3 | None
    default_ttl_seconds: Positive
    max_bytes_per_tenant: Positive
    hot_bytes: Positive
    automatic_reuse: Literal["Off", "Memory", "Durable"]
    max_upload_bytes: Positive
    open_access: bool
    peers: Peers

    @model_validator(mode="after")
    def _check_place(self) -> State:
        if (self.store == "s3") != (self.s3 is not None) or (self.s3 is None) == (
            self.path is None
        ):
            raise ValueError("s3 for the store s3, path for every other, and never both")
        return self

    @property
    def shared(self) -> bool:
        """Whether each engine reads what another has saved."""
        return self.store in ("persistentVolumeClaim", "s3")


class Http(_Section):
    """The OpenAI port and the file with the key that the router sends."""

    port: Port
    internal_key_file: AbsolutePath


class Ops(_Section):
    """The port for probes, metrics and the drain."""

    port: Port


class Drain(_Section):
    """Bounds of the drain, in seconds."""

    router_check_interval_seconds: Positive
    shutdown_timeout_seconds: Positive
    flush_timeout_seconds: Positive

    @property
    def notice_seconds(self) -> int:
        """How long a router may take to see that a pod drains: three of its checks."""
        return 3 * self.router_check_interval_seconds

    @property
    def longest_seconds(self) -> int:
        """How long a drain takes at most."""
        answers = self.notice_seconds + self.shutdown_timeout_seconds
        return answers + self.flush_timeout_seconds


class Settings(_Section):
    """The whole of engine.yaml."""

    version: Literal[1]
    deployment: Deployment
    model: Model
    stack: Stack
    engine: Engine
    state: State
    http: Http
    ops: Ops
    drain: Drain


class _StrictLoader(yaml.SafeLoader):
    """PyYAML keeps the last of two equal keys; here that is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is there twice", node.start_mark
                )
        return super().construct_mapping(node, deep)


def parse_settings(text: str) -> Settings:
    """Parse engine.yaml.

    Raises:
        ConfigInvalid: naming the first field that is wrong, what it holds and what it should.
    """
    try:
        data = yaml.load(text, _StrictLoader)
    except yaml.YAMLError as error:
        raise ConfigInvalid(f"engine.yaml is not YAML: {_one_line(str(error))}") from None
    if not isinstance(data, Mapping):
        raise ConfigInvalid(
            "engine.yaml holds no mapping", found=type(data).__name__, wanted="a mapping"
        )
    return validate(Settings, data, "engine.yaml")


def validate(section: type[Checked], data: Mapping[str, Any], document: str) -> Checked:
    """`data` as a section; ConfigInvalid names the document and its first wrong field."""
    try:
        return section.model_validate(data)
    except pydantic.ValidationError as error:
        raise _invalid(error, document) from None


def read_settings(path: Path) -> Settings:
    """Read and parse the file at `path`; errors as `parse_settings`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigInvalid(f"{path} can't be read: {reason}") from None
    return parse_settings(text)


def _invalid(error: pydantic.ValidationError, document: str) -> ConfigInvalid:
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        wanted, found = "no such key", "an unknown key"
    elif first["type"] == "missing":
        wanted, found = "a value", "nothing"
    else:
        wanted = first["msg"].removeprefix("Value error, ")
        found = _shown(first["input"])
    return ConfigInvalid(
        f"{document}: {field}: found {found}, wanted {wanted}", found=found, wanted=wanted
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


def _one_line(text: str) -> str:
    return " ".join(text.split())
