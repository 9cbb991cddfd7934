"""What real Java clients and mqadmin 4.9.7 sent to a Java broker, sent to ours: the answers must be of the same form.

The whole recorded session is played in its order, on as many connections as were recorded, as fast as it goes.
What differs by nature, or is better here on purpose, is in ``EXPECTED_DIFFERENCES`` with its reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from live_broker import ShiftedClock, live_broker, wall_clock
from replay import Answer, Exchange, Recording, Replay, differences, recording

from cometmq.protocol.codes import RequestCode

SESSION = ("admin", "admin_api", "consumer", "probe", "producer", "pull", "transaction_reply")
SESSION_LAST_SEQ = 1845  # later frames belong to a restarted broker
SESSION_BEGAN_MS = 1_794_778_953_000  # queries by time need the clock of the recording
PULL_SUSPEND = 2  # sys flag of pulls that may be held; those are not waited for
EXACT_BODIES = {RequestCode.GET_CONSUMER_LIST_BY_GROUP, RequestCode.LOCK_BATCH_MQ}

TIMING = "the session is played in seconds: what happens by time (delayed delivery, checks) has not happened"
OFFSETS = "physical offsets differ because of that, so the recorded ones lead nowhere"
EXPECTED_DIFFERENCES = {
    ("query_message_by_uniqkey", 12): "the key is asked for since a moment within the recording",
    ("pull_no_new_msg", 11): TIMING,
    ("probe_pull_ipv6_bornhost", 11): "the message came over IPv6, by a connection that was not recorded",
    ("push_consumer_retry_sendback", 36): OFFSETS,
    ("admin_api_end", 36): OFFSETS,
    ("probe_b_view_bin", 33): OFFSETS,
    ("probe_b_view_json", 33): OFFSETS,
    ("probe_b_sendback_to_dlq", 36): OFFSETS,
    ("probe_b_sendback_default_level", 36): OFFSETS,
    ("probe_b_pull_bad_sql", 11): "an expression that does not compile is an error, not match-all",
    ("admin_api_checkClientInBroker46_badsql", 46): "the parser has its own words",
    ("admin_statsAll", 315): TIMING,
    ("probe_b_acl_update_when_disabled_50", 50): "the words of a Java null pointer",
}

_peer = re.compile(r"127\.0\.0\.1:\d+")


def is_waited_for(exchange: Exchange) -> bool:
    held = (
        exchange.code == RequestCode.PULL_MESSAGE and int(exchange.fields.get("sysFlag", "0")) & PULL_SUSPEND
    )
    return not held


def without_peer(answer: Answer) -> Answer:
    return answer._replace(remark=None if answer.remark is None else _peer.sub("<peer>", answer.remark))


def compare(exchange: Exchange, actual: Answer) -> list[str]:
    expected = exchange.answer
    assert expected is not None
    java_exception = (expected.remark or "").startswith("java.")
    found = differences(without_peer(expected), without_peer(actual), remark=not java_exception)
    if exchange.code in EXACT_BODIES and actual.body != expected.body:
        found.append(f"body {actual.body!r} instead of {expected.body!r}")
    return found


async def play_session(recorded: Recording, directory: Path) -> list[str]:
    clock = ShiftedClock(SESSION_BEGAN_MS - wall_clock())
    found: list[str] = []
    async with (
        live_broker(directory, clock=clock, enable_property_filter=True) as live,
        Replay(recorded, live.broker.config.listen_port) as replay,
    ):
        for exchange in recorded.exchanges:
            where = f"{exchange.seq} {exchange.case} code {exchange.code}"
            try:
                answer = await replay.play(exchange, wait=is_waited_for(exchange))
            except TimeoutError:
                found.append(f"{where}: no answer")
                continue
            if answer is not None and (exchange.case, exchange.code) not in EXPECTED_DIFFERENCES:
                found += [f"{where}: {difference}" for difference in compare(exchange, answer)]
    return found


def test_recorded_session_of_java_clients_and_tools_gets_the_same_answers(run: Any, tmp_path: Path) -> None:
    """The golden wire recordings."""
    recorded = recording(SESSION, last_seq=SESSION_LAST_SEQ)
    assert len(recorded.exchanges) > 600
    assert run(play_session(recorded, tmp_path), timeout=60) == []


def test_consumers_are_asked_what_the_recorded_ones_were(run: Any, tmp_path: Path) -> None:
    """Notifications (40), resets (220), and relayed requests (221, 307, 309) reach the right connections."""
    recorded = recording(SESSION, last_seq=SESSION_LAST_SEQ)

    async def main() -> None:
        clock = ShiftedClock(SESSION_BEGAN_MS - wall_clock())
        async with (
            live_broker(tmp_path, clock=clock, enable_property_filter=True) as live,
            Replay(recorded, live.broker.config.listen_port) as replay,
        ):
            for exchange in recorded.exchanges:
                if exchange.code not in (RequestCode.PULL_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK):
                    await replay.play(exchange)
            asked = {conn: {code for code, _ in client.asked} for conn, client in replay.clients.items()}
            assert {40, 220, 221, 307, 309} <= asked[19]  # the long-lived push consumer
            assert 307 in asked[31]

    run(main(), timeout=60)
