//! Images streamed through a window of their rank's arena: written to the store part by part while they are copied,
//! and read back the same way.
//!
//! The node never holds the whole image, so it makes no copies, no parity and no deltas of it, and a restore reads the
//! store. A sealed image is written completely even if its rank ends.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::StreamError;
use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::{Arena, Checkpoint, Store, StoreError};
use rankguard_model::{LaunchOrder, RankRef, RestoreBytes, ShardSeal, Step};

use super::arenas::RankArena;
use super::error::RankServiceError;
use super::joint::RestoreRequest;
use super::persist::{ShardWriteFailure, SlotDisposition, shard_evidence};
use super::rank_service::{PartSink, RankService, RestoredPart};

/// Poll interval for the rank to take a part: it is another process and sends no notification.
const LOOK: Duration = Duration::from_millis(1);

/// Longest wait for the rank to take a part, or for a running write to end.
const TAKE_WITHIN: Duration = Duration::from_secs(60);

impl Drop for RankService {
    /// Marks the rank as gone: the unfilled rest of an image will not arrive.
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

impl RankService {
    /// Starts the write of an image that the rank passes through its window.
    pub(crate) fn streams(&self, slot: u32, step: Step) {
        let Some(place) = self.current() else { return };
        let all = self.all.clone();
        let rank = self.rank.clone();
        let launch = self.launch.clone();
        let gone = self.gone.clone();
        self.all.runtime.spawn_blocking(move || {
            let turn = place.turn.lock().expect("no writer panics");
            let ended = bring(&place.arena, slot, (&rank, step), &launch, &|| {
                gone.load(Ordering::SeqCst)
            });
            if !matches!(&ended, Err(void) if void.then == SlotDisposition::Stays) {
                // The window is free before the report, because the rank may reuse it as soon as it learns of the
                // commit.
                if let Err(void) = &ended {
                    all.roster.report_void_shard(&rank, step, &void.reason);
                }
                all.intake.push(shard_evidence(all.roster.entity(&rank), step, &ended));
            }
            drop(turn);
        });
    }

    /// Sends the wanted boxes back to back, as many at a time as the window holds.
    pub(super) fn restore_parts(
        &self,
        place: &RankArena,
        checkpoint: &Checkpoint,
        wanted: &[TensorBox],
        described: RestoredPart,
        until: Instant,
        hand: PartSink<'_>,
    ) -> Result<RestoreBytes, RankServiceError> {
        let parts = parts(wanted, place.arena.geometry().window);
        self.with_sources(checkpoint, |sources| {
            let mut from = RestoreBytes::default();
            let mut described = Some(described);
            for (nth, part) in parts.iter().enumerate() {
                self.wait_empty(&place.arena)?;
                let wish = RestoreRequest {
                    wanted: part.as_slice().into(),
                    arena: place.arena.clone(),
                    slot: 0,
                    reader: self.reader(checkpoint),
                };
                let wishes = [wish];
                // Failed sources are opened again for the attempts that follow.
                let got = self.fetch(checkpoint, &wishes, sources);
                let got = got.or_else(|problem| self.fetch_after(problem, place, checkpoint, &wishes, until))?;
                from.arena += got.arena;
                from.peer += got.peer;
                from.disk += got.disk;
                let restored = RestoredPart {
                    bytes: part.iter().filter_map(TensorBox::bytes).sum(),
                    more: nth + 1 < parts.len(),
                    ..described.take().unwrap_or_default()
                };
                hand(restored).map_err(|problem| {
                    let _ = place.arena.release_restored(0, self.rank.generation);
                    RankServiceError::Hand(problem)
                })?;
            }
            Ok(from)
        })
    }

    /// Waits until the rank has taken the window's content, or the running write is on disk.
    fn wait_empty(&self, arena: &Arena) -> Result<(), RankServiceError> {
        let until = Instant::now() + TAKE_WITHIN;
        while arena.empty_slots().is_empty() {
            if Instant::now() > until || arena.fence() > self.rank.generation {
                return Err(RankServiceError::NotTaken(TAKE_WITHIN));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Writes the image that passes through a rank's window, once the rank has begun to fill it with its image of `step`.
fn bring(
    arena: &Arena,
    slot: u32,
    (rank, step): (&RankRef, Step),
    launch: &LaunchOrder,
    gone: &(dyn Fn() -> bool + Sync),
) -> Result<ShardSeal, ShardWriteFailure> {
    let image = arena.streamed(slot, rank.generation, gone).map_err(|problem| {
        // The rank abandoned the image before the write began, or described it invalidly.
        if arena.slot(slot).is_ok_and(|(_, of)| of == rank.generation) {
            let _ = arena.release(slot);
        }
        ShardWriteFailure::of(&problem)
    })?;
    let index = image.index();
    let described = (&index.job, index.generation, index.rank, index.world_size, index.step);
    if described != (&rank.job, rank.generation, rank.rank, launch.world_size, step) {
        return Err(ShardWriteFailure::refused("the image says it is another's"));
    }
    let written = Store::at(&launch.checkpoint_store).write_streamed(&image);
    written.map(|written| written.seal).map_err(|problem| match &problem {
        StoreError::ImageBroken {
            problem: StreamError::GivenUp { .. } | StreamError::Fenced { .. },
            ..
        } => ShardWriteFailure {
            then: SlotDisposition::Stays,
            ..ShardWriteFailure::of(&problem)
        },
        _ => ShardWriteFailure::of_store(&problem),
    })
}

/// Splits the boxes, in order, into parts of at most `most` bytes, cutting boxes where needed; the parts' bytes
/// concatenated equal those of the boxes. Returns at least one part.
fn parts(boxes: &[TensorBox], most: u64) -> Vec<Vec<TensorBox>> {
    let mut parts = vec![Vec::new()];
    let mut bytes = 0;
    let mut cut = Vec::new();
    for boxed in boxes {
        cut_up(boxed.clone(), 0, most, &mut cut);
        for piece in cut.drain(..) {
            let size = piece.bytes().unwrap_or(u64::MAX);
            if bytes + size > most {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += size;
            parts.last_mut().expect("there is always one").push(piece);
        }
    }
    parts
}

/// Cuts a box into rows of dimension `dim`, as many at a time as `most` bytes hold; a larger row is cut further.
fn cut_up(boxed: TensorBox, dim: usize, most: u64, out: &mut Vec<TensorBox>) {
    let size = boxed.bytes().unwrap_or(u64::MAX);
    let Some(rows) = boxed.shape.get(dim).copied().filter(|_| size > most) else {
        return out.push(boxed);
    };
    let each = (most / (size / rows)).max(1);
    for first in (0..rows).step_by(usize::try_from(each).unwrap_or(usize::MAX)) {
        let mut part = boxed.clone();
        part.offset[dim] += first;
        part.shape[dim] = each.min(rows - first);
        cut_up(part, dim + 1, most, out);
    }
}

#[cfg(test)]
mod tests {
    use rankguard_checkpoint::format::Dtype;

    use super::*;

    /// Numbers of the elements of a box in the whole tensor, in the order of its bytes.
    fn elements(boxed: &TensorBox) -> Vec<u64> {
        let mut all = vec![0];
        for dim in 0..boxed.shape.len() {
            let offset = boxed.offset[dim];
            let extent = boxed.shape[dim];
            let side = boxed.global_shape[dim];
            all = all
                .iter()
                .flat_map(|at| (offset..offset + extent).map(move |place| at * side + place))
                .collect();
        }
        all
    }

    #[test]
    fn parts_fit_and_are_the_boxes_one_behind_the_other() {
        let mut middle = TensorBox::whole("b", Dtype::F32, vec![3, 5, 7]);
        (middle.offset, middle.shape) = (vec![1, 1, 2], vec![2, 3, 5]);
        let boxes = [
            TensorBox::whole("a", Dtype::F32, vec![]),
            middle,
            TensorBox::whole("c", Dtype::F32, vec![0, 9]),
            TensorBox::rows("d", Dtype::F32, vec![50], 3..40),
        ];
        let wanted: Vec<_> = boxes
            .iter()
            .flat_map(|boxed| elements(boxed).into_iter().map(|at| (&boxed.name, at)))
            .collect();
        for most in [4, 8, 20, 24, 60, 64, 1000] {
            let parts = parts(&boxes, most);
            let bytes = |part: &Vec<TensorBox>| part.iter().filter_map(TensorBox::bytes).sum::<u64>();
            assert!(parts.iter().all(|part| bytes(part) <= most), "{most}: {parts:?}");
            assert!(parts.iter().flatten().all(|boxed| boxed.check().is_ok()));
            let pieces: Vec<_> = parts.iter().flatten().collect();
            let got: Vec<_> = pieces
                .iter()
                .flat_map(|boxed| elements(boxed).into_iter().map(|at| (&boxed.name, at)))
                .collect();
            assert_eq!(got, wanted, "{most}");
        }
        assert_eq!(parts(&[], 4), [vec![]], "states come with a part of nothing");
    }
}
