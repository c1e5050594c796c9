//! Runs of neighbouring chunks in one file, which are read together.

use std::ops::Range;

use crate::format::{ChunkOrigin, ChunkPlace, TENSOR_ALIGN};
use crate::store::direct::{READ, SECTOR};

/// Chunks of one file, sorted by offset, with gaps of at most one sector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChunkRun {
    /// Shard that stores the file.
    pub(crate) file: ChunkOrigin,
    /// Start of the first chunk.
    pub(crate) at: u64,
    /// End of the last chunk.
    pub(crate) end: u64,
    /// Chunk numbers in the image, with their locations.
    pub(crate) chunks: Vec<(u32, ChunkPlace)>,
}

impl ChunkRun {
    /// Returns the range to read from a file of `file_bytes`: the chunks and the padding after the last.
    pub(crate) fn range(&self, file_bytes: u64) -> Range<u64> {
        let padded = self.end.next_multiple_of(TENSOR_ALIGN);
        // A file that is too short fails in the read.
        self.at..if self.end <= file_bytes {
            padded.min(file_bytes)
        } else {
            self.end
        }
    }
}

/// Groups chunks into runs of at most about one read, sorted by file and offset.
pub(crate) fn of(mut chunks: Vec<(u32, ChunkPlace)>) -> Vec<ChunkRun> {
    chunks.sort_by_key(|(_, place)| (place.file, place.at));
    let mut runs: Vec<ChunkRun> = Vec::new();
    for (chunk, place) in chunks {
        let end = place.at + u64::from(place.bytes);
        match runs.last_mut() {
            Some(run) if run.file == place.file && place.at <= run.end + SECTOR && end <= run.at + READ as u64 => {
                run.end = run.end.max(end);
                run.chunks.push((chunk, place));
            }
            _ => runs.push(ChunkRun {
                file: place.file,
                at: place.at,
                end,
                chunks: vec![(chunk, place)],
            }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use rankguard_model::{Generation, Rank, Step};

    use super::*;

    fn place(rank: u32, at: u64, bytes: u32) -> ChunkPlace {
        let file = ChunkOrigin {
            step: Step(1),
            generation: Generation(1),
            rank: Rank(rank),
        };
        ChunkPlace { file, at, bytes }
    }

    fn run_ranges(chunks: &[(u32, ChunkPlace)]) -> Vec<(u32, Range<u64>, Vec<u32>)> {
        let told = |run: ChunkRun| {
            let numbers = run.chunks.iter().map(|(chunk, _)| *chunk).collect();
            (run.file.rank.0, run.range(1 << 30), numbers)
        };
        of(chunks.to_vec()).into_iter().map(told).collect()
    }

    #[test]
    fn neighbours_are_read_together_and_others_are_not() {
        let far = SECTOR * 3;
        let chunks = [
            (3, place(0, far + 64, 10)),
            (1, place(0, 0, 64)),
            (2, place(0, 64, 1)),
            (0, place(1, 128, 64)),
        ];
        assert_eq!(
            run_ranges(&chunks),
            [
                (0, 0..128, vec![1, 2]),
                (0, far + 64..far + 128, vec![3]),
                (1, 128..192, vec![0])
            ]
        );
    }

    #[test]
    fn a_run_is_no_longer_than_a_read_unless_a_chunk_is() {
        let half = READ as u32 / 2;
        let chunks = [0, 1, 2].map(|nth| (nth, place(0, u64::from(nth * half), half)));
        assert_eq!(run_ranges(&chunks).len(), 2);
        assert_eq!(run_ranges(&[(0, place(0, 0, 3 * READ as u32))]).len(), 1);
    }
}
