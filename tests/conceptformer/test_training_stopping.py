"""SIGTERM is listened to while training goes on, and means afterwards what it meant before."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from conceptformer.training.run import train
from conceptformer.training.stopping import StopOnSignal
from tests.conceptformer.tiny_models import tiny_backbone
from tests.conceptformer.training_parts import data_of, examples, method, settings


@pytest.fixture
def asked() -> Iterator[list[int]]:
    """Signals that reached a handler which was there before."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    yield came
    signal.signal(signal.SIGTERM, before)


def after_step(stop: StopOnSignal) -> TrainerControl:
    control = TrainerControl()
    stop.on_step_end(TrainingArguments(use_cpu=True), TrainerState(), control)
    return control


def test_the_step_at_hand_is_finished_and_saved(asked):
    with StopOnSignal() as stop:
        assert not after_step(stop).should_training_stop
        os.kill(os.getpid(), signal.SIGTERM)
        control = after_step(stop)
    assert control.should_training_stop and control.should_save and stop.stopped
    assert asked == []


def test_the_earlier_handler_is_back_after_an_error(asked):
    with pytest.raises(RuntimeError, match="of training"), StopOnSignal() as stop:
        raise RuntimeError("of training")
    os.kill(os.getpid(), signal.SIGTERM)
    assert asked == [signal.SIGTERM] and not after_step(stop).should_training_stop


def test_the_earlier_handler_is_back_after_a_run_that_failed(asked, tmp_path, monkeypatch):
    class Failing(TrainerCallback):
        def __init__(self, *_: object) -> None: ...

        def on_step_end(self, args, state, control, **_):
            os.kill(os.getpid(), signal.SIGTERM)
            raise RuntimeError("in a step")

    monkeypatch.setattr("conceptformer.training.run.StepProgress", Failing)
    data = data_of(examples(tmp_path, 6))
    with pytest.raises(RuntimeError, match="in a step"):
        train(tiny_backbone(), method(), data, settings(), tmp_path / "out", skip_bad_rows=False)
    assert asked == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert asked == [signal.SIGTERM]


def test_another_thread_than_the_main_one_leaves_the_signal_alone(asked):
    found = []

    def listen() -> None:
        with StopOnSignal():
            found.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGTERM)]
