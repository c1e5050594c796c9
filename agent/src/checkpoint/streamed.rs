//! Images that pass through a window of their rank's arena: to the store piece by piece as they are copied, and back the same way.
//!
//! The node never has the image, so nothing else is made of it: no copies, no sums, nothing that a later shard could be
//! compared with, and what restores it is the store. What the rank has sealed comes to the store whatever becomes of the rank.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rankguard_checkpoint::arena::StreamError;
use rankguard_checkpoint::format::TensorBox;
use rankguard_checkpoint::{Arena, Checkpoint, Store, StoreError};
use rankguard_model::{Launch, RankRef, RestoreBytes, ShardSeal, Step};

use super::arenas::Place;
use super::desk::{Desk, Hand, Restored};
use super::error::DeskError;
use super::joint::Wish;
use super::persist::{Then, Void, told};

/// Between two looks at whether the rank has taken a part: it is another process and rings no bell.
const LOOK: Duration = Duration::from_millis(1);

/// The longest wait for that, and for the end of what passes the other way.
const TAKE_WITHIN: Duration = Duration::from_secs(60);

impl Drop for Desk {
    /// What the rank has not filled never comes.
    fn drop(&mut self) {
        self.gone.store(true, Ordering::SeqCst);
    }
}

impl Desk {
    /// The rank begins to pass an image through its window: all of it goes to disk meanwhile.
    pub(crate) fn streams(&self, slot: u32, step: Step) {
        let Some(place) = self.current() else { return };
        let (all, rank, launch, gone) = (
            self.all.clone(),
            self.rank.clone(),
            self.launch.clone(),
            self.gone.clone(),
        );
        self.all.runtime.spawn_blocking(move || {
            let turn = place.turn.lock().expect("no writer panics");
            let ended = bring(&place.arena, slot, (&rank, step), &launch, &|| {
                gone.load(Ordering::SeqCst)
            });
            if !matches!(&ended, Err(void) if void.then == Then::Stays) {
                // The window is free by now: the rank may find it so as soon as it hears of the commit.
                if let Err(void) = &ended {
                    all.roster.report_void_shard(&rank, step, &void.reason);
                }
                all.intake.push(told(all.roster.entity(&rank), step, &ended));
            }
            drop(turn);
        });
    }

    /// The wanted boxes back to back, as much at a time as the window holds.
    pub(super) fn restore_parts(
        &self,
        place: &Place,
        checkpoint: &Checkpoint,
        wanted: &[TensorBox],
        described: Restored,
        until: Instant,
        hand: Hand<'_>,
    ) -> Result<RestoreBytes, DeskError> {
        let parts = parts(wanted, place.arena.geometry().window);
        self.with_sources(checkpoint, |sources| {
            let mut from = RestoreBytes::default();
            let mut described = Some(described);
            for (nth, part) in parts.iter().enumerate() {
                self.wait_empty(&place.arena)?;
                let wish = Wish {
                    wanted: part.as_slice().into(),
                    arena: place.arena.clone(),
                    slot: 0,
                    reader: self.reader(checkpoint),
                };
                let wishes = [wish];
                // Sources that have failed once are made anew for the tries that follow.
                let got = self.fetch(checkpoint, &wishes, sources);
                let got = got.or_else(|problem| self.fetch_after(problem, place, checkpoint, &wishes, until))?;
                from.arena += got.arena;
                from.peer += got.peer;
                from.disk += got.disk;
                let restored = Restored {
                    bytes: part.iter().filter_map(TensorBox::bytes).sum(),
                    more: nth + 1 < parts.len(),
                    ..described.take().unwrap_or_default()
                };
                hand(restored).map_err(DeskError::Hand)?;
            }
            Ok(from)
        })
    }

    /// Until the rank has taken what is in the window, or what passed the other way is on disk.
    fn wait_empty(&self, arena: &Arena) -> Result<(), DeskError> {
        let until = Instant::now() + TAKE_WITHIN;
        while arena.empty_slots().is_empty() {
            if Instant::now() > until || arena.fence() > self.rank.generation {
                return Err(DeskError::NotTaken(TAKE_WITHIN));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

/// Writes what passes through a window of a rank, once that has begun with its image of `step`.
fn bring(
    arena: &Arena,
    slot: u32,
    (rank, step): (&RankRef, Step),
    launch: &Launch,
    gone: &(dyn Fn() -> bool + Sync),
) -> Result<ShardSeal, Void> {
    let image = arena.streamed(slot, rank.generation, gone).map_err(|problem| {
        // Given up before it was heard of, or described as nothing that can be.
        if arena.slot(slot).is_ok_and(|(_, of)| of == rank.generation) {
            let _ = arena.release(slot);
        }
        Void::of(&problem)
    })?;
    let index = image.index();
    let described = (&index.job, index.generation, index.rank, index.world_size, index.step);
    if described != (&rank.job, rank.generation, rank.rank, launch.world_size, step) {
        return Err(Void::refused("the image says it is another's"));
    }
    let written = Store::at(&launch.checkpoint_store).write_streamed(&image);
    written.map(|written| written.seal).map_err(|problem| match &problem {
        StoreError::ImageBroken {
            problem: StreamError::GivenUp { .. } | StreamError::Fenced { .. },
            ..
        } => Void {
            then: Then::Stays,
            ..Void::of(&problem)
        },
        _ => Void::of_store(&problem),
    })
}

/// The boxes in order, cut where they must be, so that the bytes of each part are no more than `most` and those of all parts,
/// one behind the other, are those of the boxes. At least one part.
fn parts(boxes: &[TensorBox], most: u64) -> Vec<Vec<TensorBox>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0);
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

/// Cuts a box into rows of dimension `dim`, as many at a time as `most` bytes hold; a row that is larger is cut further.
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
            let (offset, extent, side) = (boxed.offset[dim], boxed.shape[dim], boxed.global_shape[dim]);
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
