"""What a store says when it refuses, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sightline.errors import SightlineError
from sightline.places.addresses import Place, is_remote

_SPEAKERS = ("botocore", "aiobotocore", "boto3", "aiohttp", "fsspec", "s3fs", "gcsfs", "adlfs", "azure", "google")
"""Packages whose errors are a store's words."""
_UNREACHABLE = {
    "EndpointConnectionError", "ConnectTimeoutError", "ReadTimeoutError", "ConnectionClosedError",
    "ClientConnectorError", "HTTPClientError", "ServerDisconnectedError", "ConnectionError", "TimeoutError", "gaierror",
}  # fmt: skip
_UNKNOWN_SELF = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError"}


class StoreError(SightlineError):
    """A store, or the way to it, failed: what was asked for may be as it should be."""


@contextmanager
def told_of(where: Place, doing: str) -> Iterator[None]:
    """Around requests about a URL: whatever its store says becomes one line, such as ``cannot read URL: reason``.

    That something does not exist, or exists already, stays what it is: whoever asked knows better what it means. About
    a path nothing is changed.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        if is_remote(where) and store_code(error) == "NoSuchBucket":
            raise StoreError(f"cannot {doing} {where}: {store_reason(error)}") from error
        raise
    except Exception as error:
        if not is_remote(where) or not of_store(error):
            raise
        raise StoreError(f"cannot {doing} {where}: {store_reason(error)}") from error


def of_store(error: BaseException) -> bool:
    """Whether a store, or the way to it, is what failed, not the program."""
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _SPEAKERS


def store_reason(error: BaseException) -> str:
    """In a few words, with the way out where there is one."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    said = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    if store_code(error) == "NoSuchBucket":
        return "the bucket does not exist"
    if kinds & _UNKNOWN_SELF:
        return f"no credentials ({said}); set them in the environment, as for any other program that uses the store"
    if "PermissionError" in kinds:
        return f"no permission ({said})"
    if kinds & _UNREACHABLE:
        return f"the store cannot be reached ({said})"
    return said


def store_code(error: BaseException) -> str:
    """The store's own name of the error, where it told one."""
    answer = getattr(error.__cause__, "response", None) or {}
    return str(answer.get("Error", {}).get("Code", ""))
