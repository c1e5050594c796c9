"""Collection of the objects of one generation, without those that the process had before.

A rank leaves its generation once the objects of it have ended, also those in reference cycles. A full collection passes over
all objects of the process: with torch imported that took 0.5 s on a busy processor, for which all other ranks wait.
"""

from __future__ import annotations

import gc


class OlderObjects:
    """Objects that exist at its creation. Collections leave them out until they are released, as those that the program has
    frozen itself (`gc.freeze`) by then.
    """

    def __init__(self) -> None:
        self._are_frozen = True
        gc.freeze()

    def end_newer(self) -> None:
        """Ends the objects that were created since and that nothing refers to."""
        gc.collect()
        self.release()

    def release(self) -> None:
        """Lets collections include the older objects again."""
        if self._are_frozen:
            self._are_frozen = False
            gc.unfreeze()
