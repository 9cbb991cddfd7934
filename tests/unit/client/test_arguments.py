"""The typed keyword arguments are those that the constructors really take."""

from __future__ import annotations

import dataclasses
import inspect

import pytest

from cometmq import Client, Producer, Settings, Stream
from cometmq.client.arguments import ClientArguments, ConsumerArguments, ProducerArguments, StreamArguments
from cometmq.client.consumer.options import ConsumerOptions


def parameters(function: object) -> set[str]:
    found = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return {one.name for one in found if one.kind is inspect.Parameter.KEYWORD_ONLY}


def test_names_are_equal() -> None:
    fields = {one.name for one in dataclasses.fields(Settings)}
    assert set(ClientArguments.__annotations__) == fields - {"name_servers"}
    assert set(ConsumerArguments.__annotations__) == {one.name for one in dataclasses.fields(ConsumerOptions)}
    assert set(ProducerArguments.__annotations__) == parameters(Producer) - {"tracer"}
    assert set(StreamArguments.__annotations__) == parameters(Stream)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="colour"):
        Client("127.0.0.1:1", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Client("127.0.0.1:1").producer("p", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="colour"):
        Client("127.0.0.1:1").consumer("g", "t", colour="red")  # type: ignore[call-arg]
