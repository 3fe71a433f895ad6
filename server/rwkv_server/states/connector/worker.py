"""Copies states between this rank's cache and the slots: the connector's half in a worker.

A slot that isn't this request's any more is left alone: a load then fails its request, a save is
told as not done. Nothing here waits for a store, a network or the API process.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from threading import Thread

from rwkv_server.states.connector.copies import Copies, Finish
from rwkv_server.states.connector.sender import Sender
from rwkv_server.states.connector.work import End, PageCopy, StepWork
from rwkv_server.states.slots import SlotError, SlotFile

log = logging.getLogger(__name__)


class StateWorker:
    """One rank's copies, told by one rank's events."""

    def __init__(self, copies: Copies, slots: Path, nbytes: int, sender: Sender, rank: int) -> None:
        """Open nothing yet: the API process makes the file after the engine is up.

        Args:
            copies: moves this rank's bytes.
            slots: the file of slots.
            nbytes: of a whole snapshot.
            sender: tells of ends.
            rank: this one's number among all.
        """
        self._copies = copies
        self._path, self._nbytes = slots, nbytes
        self._file: SlotFile | None = None
        self._sender = sender
        self._rank = rank
        self._failed: dict[str, str] = {}  # transfers whose load failed
        self._prompts: set[str] = set()  # transfers whose prompt's state is saved

    def load(self, work: StepWork) -> set[int]:
        """Fill the blocks of this step's loads; return those that have no state now."""
        missing = {refusal.block for refusal in work.refusals}
        for copy in work.loads:
            try:
                self._sender.put(self._copies.load(self._slots(), copy.lease, copy.block))
            except SlotError as error:
                log.warning("the state of %s can't be loaded: %s", copy.id, error)
                self._failed[copy.id] = str(error)
                missing.add(copy.block)
        return missing

    def save_prompts(self, work: StepWork) -> None:
        """Save the states of requests that have just read their prompts."""
        for copy in work.prompts:
            if copy.id in self._failed:
                continue
            self._sender.put(partial(self._end_prompt, copy.id, self._save(copy)))

    def end(self, work: StepWork) -> set[str]:
        """Save final states and tell of all ends; return vLLM's ids of what was to be saved."""
        for end in work.ends:
            failed = end.failed or self._failed.pop(end.id, None)
            finish = self._save(end.save) if end.save is not None and failed is None else None
            self._sender.put(partial(self._tell, end, finish, failed))
        return {end.request for end in work.ends if end.save is not None}

    def close(self) -> None:
        """Tell what is left to tell."""
        self._sender.close()

    def _slots(self) -> SlotFile:
        if self._file is None:
            self._file = SlotFile.open(self._path, self._nbytes)
            Thread(target=self._file.populate, name="rwkv-slots", daemon=True).start()
        return self._file

    def _save(self, copy: PageCopy) -> Finish | None:
        try:
            return self._copies.save(self._slots(), copy.lease, copy.block)
        except SlotError as error:
            log.warning("the state of %s can't be saved: %s", copy.id, error)
            return None

    def _end_prompt(self, name: str, finish: Finish | None) -> None:
        if _ended(name, finish):
            self._prompts.add(name)

    def _tell(self, end: End, finish: Finish | None, failed: str | None) -> None:
        saved, prompt_saved = _ended(end.id, finish), end.id in self._prompts
        self._prompts.discard(end.id)
        event = {
            "id": end.id,
            "rank": self._rank,
            "status": end.status,
            "consumed": end.consumed,
            "tokens": end.tokens if self._rank == 0 else [],
            "saved": saved,
            "prompt_saved": prompt_saved,
            "failed": failed,
        }
        self._sender.send(event)


def _ended(name: str, finish: Finish | None) -> bool:
    """Whether a save that was begun, if it was, is complete now."""
    if finish is None:
        return False
    try:
        finish()
    except SlotError as error:
        log.warning("the state of %s can't be saved: %s", name, error)
        return False
    return True
