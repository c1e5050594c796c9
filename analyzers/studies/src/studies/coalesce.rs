//! How many log events are left when repeats are dropped.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rankguard_datasets::{Dataset, Table as Canonical};
use rankguard_statistics::bursts;

use crate::error::StudyError;
use crate::outcome::{Outcome, Table};
use crate::studies::{Options, Study};

pub(super) const STUDY: Study = Study {
    name: "coalesce",
    about: "log events left when repeats within a window are dropped: anywhere, at a place, at an exact location",
    needs: "events: time, node, message",
    run,
};

/// What makes two events come from one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Anywhere.
    Any,
    /// The text before the first `:` of the location.
    Prefix,
    /// The whole location.
    Full,
}

/// Patterns of Blue Gene/L's authors that stand for more than one text: name, beginning, end. All others are the text itself.
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

/// The pattern of the authors that a text has.
fn pattern(text: &str) -> Option<&'static str> {
    let fits = |(_, start, end): &&(&str, &str, &str)| text.starts_with(start) && text.ends_with(end);
    PATTERNS.iter().find(fits).map(|(name, ..)| *name)
}

/// Texts by the numbers that events have them by.
struct Texts {
    /// Those of Blue Gene/L by their pattern's name, others themselves.
    messages: Vec<String>,
    /// The number of what stands before the colon, for each location.
    prefixes: Vec<u32>,
}

/// Location, message and whole second of an event.
type Event = (u32, u32, i64);

/// Events of one file, in its order.
pub(crate) struct Events {
    rows: Vec<Event>,
    texts: Rc<Texts>,
}

impl Events {
    /// Events whose text holds a pattern.
    pub(crate) fn with(&self, pattern: &str) -> usize {
        let holds: Vec<bool> = self.texts.messages.iter().map(|text| text.contains(pattern)).collect();
        self.rows
            .iter()
            .filter(|(_, message, _)| holds[*message as usize])
            .count()
    }

    /// Events left for a window in whole seconds.
    pub(crate) fn left(&self, place: Place, window: i64) -> usize {
        let keys = self.rows.iter().map(|(location, message, time)| {
            let place = match place {
                Place::Any => 0,
                Place::Prefix => self.texts.prefixes[*location as usize],
                Place::Full => *location,
            };
            (place, *message, *time)
        });
        bursts::coalesce(keys, window).into_iter().filter(|kept| *kept).count()
    }
}

/// A number for each different text.
#[derive(Default)]
struct Numbers {
    of: HashMap<String, u32>,
    names: Vec<String>,
}

impl Numbers {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(known) = self.of.get(text) {
            return *known;
        }
        let number = self.names.len() as u32;
        self.of.insert(text.to_owned(), number);
        self.names.push(text.to_owned());
        number
    }

    /// The numbers of some texts, and that of no text behind them.
    fn each<'a>(&mut self, texts: impl Iterator<Item = &'a str>) -> Vec<u32> {
        texts.chain([""]).map(|text| self.number(text)).collect()
    }
}

/// Events by file: a folder may hold several views of one log.
pub(crate) fn by_file(data: &Dataset) -> Result<BTreeMap<String, Events>, StudyError> {
    let times = data.numbers(Canonical::Events, "time")?;
    let messages = data.labels(Canonical::Events, "message")?;
    let locations = data
        .labels(Canonical::Events, "x_location")
        .or_else(|_| data.labels(Canonical::Events, "node"))?;
    let files = data.labels(Canonical::Events, "x_file").unwrap_or_default();
    let is_blue_gene = data.source == "bgl";
    let (mut known, mut prefixes) = (Numbers::default(), Numbers::default());
    let message_of = known.each(messages.names.iter().map(|text| match pattern(text) {
        Some(name) if is_blue_gene => name,
        _ => text.as_str(),
    }));
    let prefix_of = prefixes.each(
        locations
            .names
            .iter()
            .map(|text| text.split(':').next().unwrap_or(text)),
    );
    let texts = Rc::new(Texts {
        messages: known.names,
        prefixes: prefix_of,
    });
    // Room at once: millions of events would be moved again and again.
    let without = times.len() as u64 - files.counts().iter().sum::<u64>();
    let counts = files.counts().iter().copied().chain([without]);
    let mut by_label: Vec<Vec<Event>> = counts.map(|count| Vec::with_capacity(count as usize)).collect();
    for (at, (time, (message, location))) in times.iter().zip(messages.of.iter().zip(&locations.of)).enumerate() {
        if time.is_nan() {
            continue;
        }
        let or_none = |label: Option<u32>, names: &[String]| label.map_or(names.len(), |label| label as usize);
        let file = or_none(files.of.get(at).copied().flatten(), &files.names);
        by_label[file].push((
            or_none(*location, &locations.names) as u32,
            message_of[or_none(*message, &messages.names)],
            time.floor() as i64,
        ));
    }
    let names = files.names.iter().cloned().chain([String::new()]);
    let files = names.zip(by_label).filter(|(_, rows)| !rows.is_empty());
    Ok(files
        .map(|(name, rows)| {
            let texts = Rc::clone(&texts);
            (name, Events { rows, texts })
        })
        .collect())
}

fn run(data: &Dataset, options: &Options) -> Result<Outcome, StudyError> {
    let window = options.window_s.unwrap_or(600.0) as i64;
    let named = if data.source == "bgl" {
        "; the eight patterns of the authors stand for the texts that they cover"
    } else {
        ""
    };
    let definition = format!(
        "in the order of the file; a repeat has the text that its place had last, not more than {window} whole seconds ago, and moves that moment forward (sliding window){named}"
    );
    let mut outcome = Outcome::new("coalesce", data, definition);
    let mut table = Table::new(
        "events left",
        &[
            "file",
            "events",
            "anywhere",
            "at a place (before the colon)",
            "at a full location",
        ],
    );
    for (file, events) in by_file(data)? {
        table.row([
            file.into(),
            events.rows.len().into(),
            events.left(Place::Any, window).into(),
            events.left(Place::Prefix, window).into(),
            events.left(Place::Full, window).into(),
        ]);
    }
    outcome.tables.push(table);
    Ok(outcome)
}
