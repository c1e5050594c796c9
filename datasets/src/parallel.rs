//! Parallel reading of lines that are independent of earlier ones.
//!
//! A file is split into parts at line ends, each is read separately, and the results are joined in order: rows,
//! problems and counts equal those of sequential reading. If the last record of a part continues beyond it, or a part
//! does not [fit](Load::fits) the earlier ones, reading continues sequentially from that part on.

use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};

use crate::input::{InputFile, InputPart};
use crate::load::LoadState;

/// Bytes of a part: large enough that common names are few relative to its rows.
const PART: usize = 4 << 20;
/// Maximum number of concurrent parts, which bounds memory on large machines.
const MOST: usize = 16;

/// Reads all remaining lines with `rows`.
pub(crate) fn read(input: &mut InputFile, load: &mut LoadState, rows: impl Fn(&mut InputFile, &mut LoadState) + Sync) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
    read_in(input, load, cores, PART, rows);
}

fn read_in(
    input: &mut InputFile,
    load: &mut LoadState,
    cores: usize,
    bytes: usize,
    rows: impl Fn(&mut InputFile, &mut LoadState) + Sync,
) {
    let rows = &rows;
    thread::scope(|scope| {
        let mut workers = Vec::new();
        loop {
            let (parts, other) = input.parts(cores, bytes);
            if parts.len() > 1 && workers.is_empty() {
                workers.extend((1..cores).map(|_| ReaderThread::new(scope, rows)));
            }
            // A missing worker has panicked, and the scope propagates that at its end.
            let Some(done) = each(parts, load, &workers, rows) else {
                return;
            };
            let mut done = done.into_iter();
            while let Some(PartResult { part, found }) = done.next() {
                match found.filter(|found| load.fits(found)) {
                    Some(found) => load.join(found),
                    None => {
                        input.untake(std::iter::once(part).chain(done.map(|done| done.part)));
                        return rows(input, load);
                    }
                }
            }
            if let Some(other) = other
                && input.report_read_event(other, load).is_none()
            {
                return;
            }
        }
    });
}

/// Part for a worker, and the target of its rows.
type PartJob = (InputPart, LoadState);

/// Result of a part; `found` is `None` if its last record continues beyond it.
struct PartResult {
    part: InputPart,
    found: Option<LoadState>,
}

/// Thread that reads parts until the channel closes: one a file, so that its memory stays warm.
struct ReaderThread {
    jobs: Sender<PartJob>,
    done: Receiver<PartResult>,
}

impl ReaderThread {
    fn new<'scope>(
        scope: &'scope Scope<'scope, '_>,
        rows: &'scope (impl Fn(&mut InputFile, &mut LoadState) + Sync),
    ) -> Self {
        let (jobs, mine) = mpsc::channel();
        let (sender, done) = mpsc::channel();
        scope.spawn(move || {
            // Stops when the receiver is gone.
            mine.into_iter()
                .map(|job| one(job, rows))
                .all(|done| sender.send(done).is_ok())
        });
        Self { jobs, done }
    }
}

fn one((part, mut found): PartJob, rows: &impl Fn(&mut InputFile, &mut LoadState)) -> PartResult {
    let lines = part.lines;
    let before = part.before;
    let mut input = InputFile::of(part);
    rows(&mut input, &mut found);
    let (block, torn) = input.into_block();
    PartResult {
        part: InputPart { block, lines, before },
        found: Some(found).filter(|_| !torn),
    }
}

/// Reads parts, one of each turn here and the others by workers, and returns them in order; `None` if a worker is gone.
fn each(
    parts: Vec<InputPart>,
    load: &mut LoadState,
    workers: &[ReaderThread],
    rows: &impl Fn(&mut InputFile, &mut LoadState),
) -> Option<Vec<PartResult>> {
    let count = parts.len();
    let worker = |at: usize| (at % (workers.len() + 1)).checked_sub(1).map(|worker| &workers[worker]);
    let mut mine = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        let found = load.part(part.lines as usize);
        match worker(at) {
            Some(worker) => worker.jobs.send((part, found)).ok()?,
            None => mine.push((part, found)),
        }
    }
    let mine: Vec<PartResult> = mine.into_iter().map(|job| one(job, rows)).collect();
    let mut mine = mine.into_iter();
    let done = (0..count).map(|at| match worker(at) {
        Some(worker) => worker.done.recv().ok(),
        None => mine.next(),
    });
    done.collect()
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use crate::csv::DelimitedFile;
    use crate::provenance::FileRead;
    use crate::table::TableKind;

    fn rows(input: &mut InputFile, load: &mut LoadState) {
        let mut csv = DelimitedFile::with_header(input, ",", vec!["time".to_owned(), "node".to_owned()]);
        while csv.next(load) {
            let time = csv.num("time", load);
            load.in_order(TableKind::Failures, time);
            load.offset("time", csv.get("time") != "7", "count as UTC");
            load.row(TableKind::Failures)
                .num("time", time)
                .text("node", csv.get("node"));
        }
    }

    /// Result of reading in parts of `bytes` bytes.
    fn read(text: &str, bytes: usize) -> String {
        let mut load = LoadState::default();
        load.begin(FileRead::default());
        let mut input = InputFile::new(Box::new(Cursor::new(text.to_owned())));
        read_in(&mut input, &mut load, 3, bytes, rows);
        load.report_repeats();
        let files = std::mem::take(&mut load.files);
        let problems = std::mem::take(&mut load.problems);
        let columns = load.tables.remove(&TableKind::Failures).map(|rows| rows.into_columns());
        let found = columns.map(|columns| (columns.rows(), columns.numbers("time"), columns.labels("node")));
        format!("{files:?} {problems:?} {found:?}")
    }

    proptest! {
        #[test]
        fn parts_give_what_reading_on_gives(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "7,a", "8,b", "9,c", "10,a", "x,a", "1,\"q,q\"", "2,\"over", "lines\"", "3", "\"never", "", "time,node", "11,\u{e9}",
                ]),
                0..60,
            ),
            bytes in 1_usize..200,
        ) {
            let text = lines.join("\n");
            prop_assert_eq!(read(&text, bytes), read(&text, 1 << 20));
        }
    }
}
