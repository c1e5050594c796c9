//! Study of repeated log events: number of events that remain after repeats within a window are dropped.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use rankguard_datasets::{Dataset, LabelColumn, RowLabel, TableKind as Canonical};
use rankguard_statistics::bursts::RepeatFilter;

use crate::error::StudyError;
use crate::outcome::{ResultCell, ResultTable, StudyResult};
use crate::studies::{Study, StudyOptions};

pub(super) const STUDY: Study = Study {
    name: "coalesce",
    about: "log events left when repeats within a window are dropped: anywhere, at a place, at an exact location",
    needs: "events: time, node, message",
    run,
};

/// Number of the location, number of the message, and time in whole seconds.
type LogEvent = (u32, u32, f64);

/// Number of events of one file, and of those that remain without repeats.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CoalescedCounts {
    pub(crate) events: usize,
    /// Events that remain if repeats are dropped that occur anywhere, at locations with the same text before the first
    /// `:`, or at the same location.
    pub(crate) by_place: [usize; 3],
}

impl CoalescedCounts {
    /// Adds the next events to the counts. `prefix_of` maps the number of a location to that of its text before the
    /// first `:`.
    fn see(&mut self, events: &[LogEvent], prefix_of: &[u32], repeats: &mut [RepeatFilter; 3]) {
        let events = || events.iter().copied();
        let prefix = |location: u32| prefix_of[location as usize];
        let [anywhere, before_colon, at_location] = repeats;
        let left = [
            anywhere.left(events().map(|(_, message, second)| (0, message, second))),
            before_colon.left(events().map(|(location, message, second)| (prefix(location), message, second))),
            at_location.left(events()),
        ];
        for (all, left) in self.by_place.iter_mut().zip(left) {
            *all += left;
        }
        self.events += events().len();
    }
}

/// Patterns of Blue Gene/L's authors that match more than one text: name, beginning, end. All others match the text
/// itself.
const PATTERNS: [(&str, &str, &str); 8] = [
    ("fan read", "While reading FanModule ", ": Broken pipe"),
    ("fan speed", "While setting fan speed ", ": Broken pipe"),
    ("monitor pipe", "monitor caught ", ": Broken pipe and is stopping"),
    ("monitor power", "monitor caught ", " not present and is stopping"),
    ("pap failed", "MidplaneSwitchController::", " pap failed:"),
    ("iap failed", "MidplaneSwitchController::", " iap failed:"),
    ("power module", "No power module ", " found found on link card"),
    ("L3 error", "", "L3 major internal error"),
];

/// Returns the name of the pattern that matches a text; `None` if the text stands for itself.
fn pattern(text: &str) -> Option<&'static str> {
    let fits = |(_, start, end): &&(&str, &str, &str)| text.starts_with(start) && text.ends_with(end);
    PATTERNS.iter().find(fits).map(|(name, ..)| *name)
}

/// Returns a number for each label, by its index in [`LabelColumn::of`]: index 0 is an absent label, and has the empty
/// text. Equal texts have equal numbers.
fn numbered<'a>(names: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let mut numbers = HashMap::new();
    let mut number = |name| {
        let next = numbers.len() as u32;
        *numbers.entry(name).or_insert(next)
    };
    std::iter::once("").chain(names).map(&mut number).collect()
}

/// Rounds a time in seconds down; the floor function of the standard library is a function call on some processors.
fn second(moment: f64) -> f64 {
    let toward_zero = moment as i64 as f64;
    toward_zero - f64::from(u8::from(toward_zero > moment))
}

/// Maximum number of events of a block. All three filters process a block before the next one is read.
const TOGETHER: usize = 1 << 10;

/// Returns the label of the first file in `rows`, and its leading rows, at most a block.
fn together(files: &LabelColumn, rows: Range<usize>) -> (RowLabel, Range<usize>) {
    let from = rows.start;
    let behind = rows.end.min(rows.start + TOGETHER);
    match files.of.get(from..behind) {
        Some(of) => (of[0], from..from + of.iter().take_while(|file| **file == of[0]).count()),
        // The data set has no column of files.
        None => (RowLabel::default(), from..behind),
    }
}

/// Counts the remaining events of each file, because a folder may hold several views of one log. `window` is in whole
/// seconds. Fails if a required column is missing.
pub(crate) fn by_file(data: &Dataset, window: f64) -> Result<BTreeMap<String, CoalescedCounts>, StudyError> {
    let times = data.numbers(Canonical::Events, "time")?;
    let messages = data.labels(Canonical::Events, "message")?;
    let locations = data
        .labels(Canonical::Events, "x_location")
        .or_else(|_| data.labels(Canonical::Events, "node"))?;
    let files = data.labels(Canonical::Events, "x_file").unwrap_or_default();
    let is_blue_gene = data.source == "bgl";
    let message_of = numbered(messages.names.iter().map(|text| match pattern(text) {
        Some(name) if is_blue_gene => name,
        _ => text.as_str(),
    }));
    let prefix_of = numbered(
        locations
            .names
            .iter()
            .map(|text| text.split(':').next().unwrap_or(text)),
    );
    let mut parts = Vec::new();
    let mut from = 0;
    while from < times.len() {
        let part = together(&files, from..times.len());
        from = part.1.end;
        parts.push(part);
    }
    // Files are processed one after the other, so that the filters of only one file are in memory.
    parts.sort_by_key(|(file, _)| usize::from(*file));
    let mut found = BTreeMap::new();
    let mut events: Vec<LogEvent> = Vec::with_capacity(TOGETHER);
    for parts in parts.chunk_by(|one, other| one.0 == other.0) {
        let mut left = CoalescedCounts::default();
        let mut repeats = [(); 3].map(|()| RepeatFilter::new(window));
        for (_, rows) in parts {
            let texts = messages.of[rows.clone()].iter().zip(&locations.of[rows.clone()]);
            let rows = times[rows.clone()].iter().zip(texts).filter(|(time, _)| !time.is_nan());
            events.clear();
            events.extend(rows.map(|(time, (message, location))| {
                let message = message_of[usize::from(*message)];
                (usize::from(*location) as u32, message, second(*time))
            }));
            left.see(&events, &prefix_of, &mut repeats);
        }
        let name = parts[0].0.name().map_or("", |name| &files.names[name as usize]);
        if left.events > 0 {
            found.insert(name.to_owned(), left);
        }
    }
    Ok(found)
}

fn run(data: &Dataset, options: &StudyOptions) -> Result<StudyResult, StudyError> {
    let window = options.window_s.unwrap_or(600.0).trunc();
    let named = if data.source == "bgl" {
        "; the eight patterns of the authors stand for the texts that they cover"
    } else {
        ""
    };
    let definition = format!(
        "in the order of the file; a repeat has the text that its place had last, not more than {window} whole seconds ago, and moves that moment forward (sliding window){named}"
    );
    let mut outcome = StudyResult::new("coalesce", data, definition);
    let mut table = ResultTable::new(
        "events left",
        &[
            "file",
            "events",
            "anywhere",
            "at a place (before the colon)",
            "at a full location",
        ],
    );
    for (file, left) in by_file(data, window)? {
        let counts = [left.events].into_iter().chain(left.by_place);
        table.row([file.into()].into_iter().chain(counts.map(ResultCell::from)));
    }
    outcome.tables.push(table);
    Ok(outcome)
}
