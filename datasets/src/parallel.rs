//! Lines that mean the same whichever were read before them, read on all cores.
//!
//! A file is cut into parts at ends of lines, each is read by itself, and what they gave is joined in their order: rows,
//! problems and counts are those of reading line by line. A part whose last record goes on behind it, or that does not
//! [fit](Load::fits) what came before, is read again from there on, line by line.

use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, Scope};

use crate::input::{Input, Part};
use crate::load::Load;

/// Bytes of a part: enough that names that all parts have are few beside its rows.
const PART: usize = 4 << 20;
/// No more parts at a time, so that memory stays bounded on large machines.
const MOST: usize = 16;

/// Reads all lines that are left by `rows`.
pub(crate) fn read(input: &mut Input, load: &mut Load, rows: impl Fn(&mut Input, &mut Load) + Sync) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get).min(MOST);
    read_in(input, load, cores, PART, rows);
}

fn read_in(
    input: &mut Input,
    load: &mut Load,
    cores: usize,
    bytes: usize,
    rows: impl Fn(&mut Input, &mut Load) + Sync,
) {
    let rows = &rows;
    thread::scope(|scope| {
        let mut workers = Vec::new();
        loop {
            let (parts, other) = input.parts(cores, bytes);
            if parts.len() > 1 && workers.is_empty() {
                workers.extend((1..cores).map(|_| Worker::new(scope, rows)));
            }
            // A worker that is gone has panicked, and so does the scope at its end.
            let Some(done) = each(parts, load, &workers, rows) else {
                return;
            };
            let mut done = done.into_iter();
            while let Some(Done { part, found }) = done.next() {
                match found.filter(|found| load.fits(found)) {
                    Some(found) => load.join(found),
                    None => {
                        input.untake(std::iter::once(part).chain(done.map(|done| done.part)));
                        return rows(input, load);
                    }
                }
            }
            if let Some(other) = other
                && input.tell(other, load).is_none()
            {
                return;
            }
        }
    });
}

/// A part on its way to a worker, and where its rows go.
type Job = (Part, Load);

/// A part that was read; nothing is found where its last record goes on behind it.
struct Done {
    part: Part,
    found: Option<Load>,
}

/// Reads parts until nobody sends any: one thread for all of a file, whose memory is warm after the first.
struct Worker {
    jobs: Sender<Job>,
    done: Receiver<Done>,
}

impl Worker {
    fn new<'scope>(scope: &'scope Scope<'scope, '_>, rows: &'scope (impl Fn(&mut Input, &mut Load) + Sync)) -> Self {
        let (jobs, mine) = mpsc::channel();
        let (told, done) = mpsc::channel();
        scope.spawn(move || {
            // Whoever asked may be gone: then nobody wants the rest.
            mine.into_iter()
                .map(|job| one(job, rows))
                .all(|done| told.send(done).is_ok())
        });
        Self { jobs, done }
    }
}

fn one((part, mut found): Job, rows: &impl Fn(&mut Input, &mut Load)) -> Done {
    let (lines, before) = (part.lines, part.before);
    let mut input = Input::of(part);
    rows(&mut input, &mut found);
    let (block, torn) = input.into_block();
    Done {
        part: Part { block, lines, before },
        found: Some(found).filter(|_| !torn),
    }
}

/// Reads parts, one of each turn here and the others by workers, and gives them in their order; none
/// where a worker is gone.
fn each(
    parts: Vec<Part>,
    load: &mut Load,
    workers: &[Worker],
    rows: &impl Fn(&mut Input, &mut Load),
) -> Option<Vec<Done>> {
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
    let mine: Vec<Done> = mine.into_iter().map(|job| one(job, rows)).collect();
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
    use crate::csv::Csv;
    use crate::provenance::FileRead;
    use crate::table::Table;

    fn rows(input: &mut Input, load: &mut Load) {
        let mut csv = Csv::with_header(input, ",", vec!["time".to_owned(), "node".to_owned()]);
        while csv.next(load) {
            let time = csv.num("time", load);
            load.in_order(Table::Failures, time);
            load.offset("time", csv.get("time") != "7", "count as UTC");
            load.row(Table::Failures)
                .num("time", time)
                .text("node", csv.get("node"));
        }
    }

    /// All that reading in parts of so many bytes gives.
    fn read(text: &str, bytes: usize) -> String {
        let mut load = Load::default();
        load.begin(FileRead::default());
        let mut input = Input::new(Box::new(Cursor::new(text.to_owned())));
        read_in(&mut input, &mut load, 3, bytes, rows);
        load.told_repeats();
        let (files, problems) = (std::mem::take(&mut load.files), std::mem::take(&mut load.problems));
        let columns = load.tables.remove(&Table::Failures).map(|rows| rows.into_columns());
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
