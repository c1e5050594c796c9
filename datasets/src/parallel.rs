//! Lines that mean the same whichever were read before them, read on all cores.
//!
//! A file is cut into parts at ends of lines, each is read by itself, and what they gave is joined in their order: rows,
//! problems and counts are those of reading line by line. A part whose last record goes on behind it, or that does not
//! [fit](Load::fits) what came before, is read again from there on, line by line.

use std::num::NonZero;
use std::thread;

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
    loop {
        let (parts, other) = input.parts(cores, bytes);
        let mut done = each(parts, load, &rows).into_iter();
        while let Some((part, found)) = done.next() {
            match found.filter(|found| load.fits(found)) {
                Some(found) => load.join(found),
                None => {
                    input.untake(std::iter::once(part).chain(done.map(|(part, _)| part)));
                    rows(input, load);
                    return;
                }
            }
        }
        if let Some(other) = other
            && input.tell(other, load).is_none()
        {
            return;
        }
    }
}

/// Reads each part on a thread of its own; nothing is found where its last record goes on behind it.
fn each(parts: Vec<Part>, load: &Load, rows: &(impl Fn(&mut Input, &mut Load) + Sync)) -> Vec<(Part, Option<Load>)> {
    let one = |part: Part| {
        let (mut found, before) = (load.part(), part.before);
        let mut input = Input::of(part);
        rows(&mut input, &mut found);
        let (part, torn) = input.into_part(before);
        (part, Some(found).filter(|_| !torn))
    };
    if parts.len() < 2 {
        return parts.into_iter().map(one).collect();
    }
    thread::scope(|scope| {
        let running: Vec<_> = parts.into_iter().map(|part| scope.spawn(|| one(part))).collect();
        let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
        ended
            .map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
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
