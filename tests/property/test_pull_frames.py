"""The short way of pull frames reads and writes what the general one does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import RemotingCommand, decode_frame
from cometmq.protocol.headers import PullMessageHeader
from cometmq.protocol.pull_frames import begins_pull, decode_pull, encode_pull_head

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=20)

HEADERS = st.builds(
    PullMessageHeader,
    consumer_group=TEXT,
    topic=TEXT,
    queue_id=INT32,
    queue_offset=INT64,
    max_msg_nums=INT32,
    sys_flag=INT32,
    commit_offset=INT64,
    suspend_timeout_millis=INT64,
    subscription=st.none() | TEXT,
    sub_version=INT64,
    expression_type=st.none() | TEXT,
    broker_name=st.none() | TEXT,
)


def pull_frame(header: PullMessageHeader, opaque: int) -> bytes:
    command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
    command.opaque = opaque
    return command.encode()


@given(header=HEADERS, opaque=INT32, before=st.binary(max_size=9), after=st.binary(max_size=9))
def test_a_request_reads_the_same_both_ways(
    header: PullMessageHeader, opaque: int, before: bytes, after: bytes
) -> None:
    frame = pull_frame(header, opaque)
    view = memoryview(before + frame + after)
    assert begins_pull(view, len(before))
    request = decode_pull(view, len(before), len(view))
    general = decode_frame(frame)
    assert request is not None
    assert request.size == len(frame)
    assert request.opaque == general.opaque == opaque
    assert request.header == PullMessageHeader.decode(general.ext_fields) == header


@given(header=HEADERS, data=st.data())
def test_what_is_cut_or_changed_is_left_to_the_general_decoder(
    header: PullMessageHeader, data: st.DataObject
) -> None:
    frame = bytearray(pull_frame(header, 1))
    cut = data.draw(st.integers(0, len(frame) - 1))
    assert decode_pull(memoryview(frame), 0, cut) is None
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    request = decode_pull(memoryview(frame), 0, len(frame))
    if request is not None:  # a digit or a letter changed: then both read the same
        general = decode_frame(frame)
        assert request.header == PullMessageHeader.decode(general.ext_fields)
        assert request.opaque == general.opaque


def test_one_way_requests_and_those_with_a_body_are_left_alone() -> None:
    header = PullMessageHeader(
        consumer_group="g", topic="t", queue_id=0, queue_offset=0, max_msg_nums=32, sys_flag=0, commit_offset=0,
        suspend_timeout_millis=0, sub_version=0,
    )  # fmt: skip
    oneway = RemotingCommand.request(RequestCode.PULL_MESSAGE, header, oneway=True).encode()
    with_body = RemotingCommand.request(RequestCode.PULL_MESSAGE, header, b"x").encode()
    for frame in (oneway, with_body):
        assert decode_pull(memoryview(frame), 0, len(frame)) is None


@given(
    code=st.integers(0, 30), opaque=INT32, numbers=st.tuples(INT64, INT64, INT64, INT64), size=st.integers(0, 1000)
)  # fmt: skip
def test_the_head_of_an_answer_is_the_same_both_ways(
    code: int, opaque: int, numbers: tuple[int, int, int, int], size: int
) -> None:
    names = ("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset")
    response = RemotingCommand(code=code, opaque=opaque, flag=1, remark="FOUND")
    response.ext_fields = dict(zip(names, map(str, numbers), strict=True))
    assert encode_pull_head(code, "FOUND", opaque, *numbers, size) == response.encode_head(size)
