"""The few requests of etcd's v3 HTTP gateway that a controller needs, with the standard library only.

Blocking HTTP in a small pool of threads: a controller makes some tens of requests a second at most. Keys and values are
base64 on the wire, 64-bit numbers are strings.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from cometmq.errors import ConfigError, ConnectionLost, Timeout

REQUEST_SECONDS = 2.0
THREADS = 4


class KeyValue(NamedTuple):
    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


class Compare(NamedTuple):
    """What must hold of a key; revision 0: it does not exist."""

    key: str
    target: str  # CREATE or MOD
    revision: int


class EtcdClient:
    """Loop thread only."""

    def __init__(self, endpoints: tuple[str, ...]) -> None:
        self._endpoints = [_parse(endpoint) for endpoint in endpoints]
        self._first = 0  # the endpoint that answered last
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="etcd")
        self._idle: deque[tuple[int, http.client.HTTPConnection]] = deque()  # by number of the endpoint
        self._closed = False
        self.revision = 0  # of the newest answer

    async def get(self, key: str) -> KeyValue | None:
        """Linearizable."""
        answer = await self._post("kv/range", {"key": _encode(key)})
        found = answer.get("kvs", [])
        return _key_value(found[0]) if found else None

    async def get_prefix(self, prefix: str) -> list[KeyValue]:
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        answer = await self._post("kv/range", {"key": _encode(prefix), "range_end": _encode(end)})
        return [_key_value(item) for item in answer.get("kvs", [])]

    async def put_if(
        self, compares: list[Compare], key: str, value: bytes, lease: int = 0
    ) -> tuple[bool, int]:
        """One transaction: write if everything holds. Returns whether it did, and the revision."""
        put = {"key": _encode(key), "value": base64.b64encode(value).decode(), "lease": str(lease)}
        answer = await self._post(
            "kv/txn",
            {"compare": [_compare(item) for item in compares], "success": [{"requestPut": put}]},
        )
        return bool(answer.get("succeeded", False)), self.revision

    async def grant(self, ttl_seconds: int) -> tuple[int, int]:
        """A new lease: its id, and how long it lives (etcd has a minimum)."""
        answer = await self._post("lease/grant", {"TTL": str(ttl_seconds), "ID": "0"})
        return int(answer["ID"]), int(answer["TTL"])

    async def keep_alive(self, lease: int) -> bool:
        answer = await self._post("lease/keepalive", {"ID": str(lease)})
        return int(answer.get("result", {}).get("TTL", 0)) > 0

    async def revoke(self, lease: int) -> None:
        await self._post("lease/revoke", {"ID": str(lease)})

    def close(self) -> None:
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        while self._idle:
            self._idle.pop()[1].close()

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        answer = await loop.run_in_executor(self._pool, self._request, path, msgspec.json.encode(body))
        header = answer.get("header") or answer.get("result", {}).get("header") or {}
        self.revision = max(self.revision, int(header.get("revision", 0)))
        return answer

    # -- in a thread of the pool ------------------------------------------------------------------------------------

    def _request(self, path: str, body: bytes) -> dict[str, Any]:
        """Try every endpoint once. A request that was sent and not answered is not sent again: it may have worked."""
        last: Exception | None = None
        for step in range(len(self._endpoints)):
            number = (self._first + step) % len(self._endpoints)
            try:
                answer = self._request_one(number, path, body)
            except (ConnectionRefusedError, http.client.CannotSendRequest) as error:
                last = error
                continue
            except TimeoutError as error:
                self._first = number + 1
                raise Timeout(f"etcd did not answer within {REQUEST_SECONDS} s.") from error
            except (OSError, http.client.HTTPException) as error:
                self._first = number + 1
                raise ConnectionLost(f"etcd at {self._endpoints[number]}: {error}.") from error
            self._first = number
            return answer
        raise ConnectionLost(f"No endpoint of etcd can be reached: {last}.")

    def _connection(self, number: int) -> http.client.HTTPConnection:
        """An open one to this endpoint, or a new one; those to others are given up."""
        while self._idle:
            try:
                known, connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if known == number:
                return connection
            connection.close()
        host, port = self._endpoints[number]
        return http.client.HTTPConnection(host, port, timeout=REQUEST_SECONDS)

    def _request_one(self, number: int, path: str, body: bytes) -> dict[str, Any]:
        connection = self._connection(number)
        try:
            connection.request("POST", f"/v3/{path}", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
        except BaseException:
            connection.close()
            raise
        if response.will_close or self._closed:
            connection.close()
        else:
            self._idle.append((number, connection))
        if response.status != http.client.OK:
            raise http.client.HTTPException(f"{response.status} {content[:200]!r}")
        answer: dict[str, Any] = msgspec.json.decode(content)
        return answer


def _parse(endpoint: str) -> tuple[str, int]:
    parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    if parts.hostname is None or parts.port is None or parts.scheme not in ("", "http"):
        raise ConfigError(f"controllerEtcdEndpoints: {endpoint!r} is not http://host:port.")
    return parts.hostname, parts.port


def _encode(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def _key_value(item: dict[str, str]) -> KeyValue:
    return KeyValue(
        base64.b64decode(item["key"]).decode(),
        base64.b64decode(item.get("value", "")),
        int(item["create_revision"]),
        int(item["mod_revision"]),
        int(item.get("lease", 0)),
    )


def _compare(compare: Compare) -> dict[str, str]:
    field = "createRevision" if compare.target == "CREATE" else "modRevision"
    return {
        "key": _encode(compare.key),
        "target": compare.target,
        "result": "EQUAL",
        field: str(compare.revision),
    }
