//! What a run, or many, said: templates with counts, places, streams and runs.

use serde::{Deserialize, Serialize};

use crate::cache;
use crate::id::TemplateId;
use crate::limits::Limits;
use crate::marks::Marks;
use crate::names;
use crate::tree::{Entry, MANY, MANY_ALARMING, Tree};

/// The version of [`Profile`] that this crate writes, and the only one that it reads.
pub const PROFILE_VERSION: u32 = 1;

/// One source of lines that were written in order: a rank's output, a node's kernel log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stream {
    /// Its name, such as `rank 3` or `node-7 kernel`.
    pub name: String,
    /// What it is to be compared with: streams of one group are expected to say the same.
    pub group: String,
    /// The number of its last line.
    pub lines: u64,
}

/// Where a line stands. Of places in several streams the lowest line is the first: across streams there is no other order,
/// and equal lines are told apart by a digest of the streams' names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    /// Line number, from 1.
    pub line: u64,
    /// Number of the stream in [`Profile::streams`].
    pub stream: u32,
}

/// One template and what was seen of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its text: `<*>` for what looks like a value, `<+>` (`<!>` where the line announces trouble) for a word of which
    /// there were too many.
    pub text: String,
    /// Lines.
    pub count: u64,
    /// The first of them.
    pub first: Place,
    /// The last of them.
    pub last: Place,
    /// The first of them as it was, cut to a bound.
    pub example: String,
    pub(crate) streams: Marks,
    pub(crate) runs: Marks,
}

impl Template {
    /// Its name, the same in every run and on every node.
    pub fn id(&self) -> TemplateId {
        TemplateId::of(&self.text)
    }

    /// How many streams showed it.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// How many runs showed it.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Numbers of the streams that showed it, as in [`Profile::streams`].
    pub fn streams(&self) -> impl Iterator<Item = u32> + '_ {
        self.streams.iter()
    }
}

/// What was not kept whole, in lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shortfalls {
    /// Without any token; they have no template.
    pub blank: u64,
    /// Longer than the bounds on lines and templates: their end was not looked at.
    pub cut: u64,
    /// Not UTF-8: read with replacement characters.
    pub not_utf8: u64,
    /// Of streams beyond the bound: counted under [`OTHERS`].
    pub stream_unnamed: u64,
    /// How often the fan-out was halved to keep the number of templates within its bound. From one on, which words are
    /// values can depend on the order of lines.
    pub pressure: u32,
}

/// What a run, or many, said. Lists are sorted, so that the same lines give the same bytes.
///
/// The counts of all templates and [`Shortfalls::blank`] add up to `lines`. Merging is commutative and associative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// [`PROFILE_VERSION`].
    pub version: u32,
    /// The bounds that it keeps.
    pub limits: Limits,
    /// Lines seen.
    pub lines: u64,
    /// What was not kept whole.
    pub shortfalls: Shortfalls,
    /// Names of the runs seen, sorted.
    pub runs: Vec<String>,
    /// Streams seen, sorted by name.
    pub streams: Vec<Stream>,
    /// Templates, sorted by text.
    pub templates: Vec<Template>,
}

/// Why a profile cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// Written by another version.
    #[error("`version` is {0}; this program reads {PROFILE_VERSION}")]
    Version(u32),
    /// A list is longer than the profile's own bounds allow.
    #[error("`{0}` is longer than the bounds in `limits`")]
    TooLong(&'static str),
    /// A list is not in order or has a name twice.
    #[error("`{0}` is not sorted or has a name twice")]
    NotSorted(&'static str),
    /// A template is empty, too long, or speaks of a stream or run that is not there.
    #[error("`templates[{0}]` is malformed: {1}")]
    Template(usize, &'static str),
}

/// A place with an order that does not depend on how streams are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) line: u64,
    /// [`order`] of the stream's name.
    pub(crate) order: u64,
    pub(crate) stream: u32,
}

impl From<Spot> for Place {
    fn from(spot: Spot) -> Self {
        Self {
            line: spot.line,
            stream: spot.stream,
        }
    }
}

/// What decides between equal line numbers of different streams.
pub(crate) fn order(name: &str) -> u64 {
    cache::hash(name.as_bytes())
}

/// What the tree's leaves keep while lines or profiles come in.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) count: u64,
    pub(crate) first: Spot,
    pub(crate) last: Spot,
    pub(crate) example: String,
    pub(crate) streams: Marks,
    pub(crate) runs: Marks,
}

impl Entry for Seen {
    fn absorb(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        // Runs that were merged may have the same place: the smaller text wins, in whatever order they come.
        if (other.first, &other.example) < (self.first, &self.example) {
            self.first = other.first;
            self.example = other.example;
        }
        self.last = self.last.max(other.last);
        self.streams.unite(&other.streams);
        self.runs.unite(&other.runs);
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::empty(Limits::default())
    }
}

impl Profile {
    /// A profile of nothing.
    pub fn empty(limits: Limits) -> Self {
        Self {
            version: PROFILE_VERSION,
            limits: limits.checked(),
            lines: 0,
            shortfalls: Shortfalls::default(),
            runs: Vec::new(),
            streams: Vec::new(),
            templates: Vec::new(),
        }
    }

    /// Checks what was read from a file; everything else in this crate relies on it.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.version != PROFILE_VERSION {
            return Err(ProfileError::Version(self.version));
        }
        let limits = self.limits.checked();
        for (list, length, bound) in [
            ("runs", self.runs.len(), limits.runs + 1),
            ("streams", self.streams.len(), limits.streams + 1),
            ("templates", self.templates.len(), limits.templates),
        ] {
            if length > bound {
                return Err(ProfileError::TooLong(list));
            }
        }
        if !sorted(self.runs.iter().map(String::as_str)) {
            return Err(ProfileError::NotSorted("runs"));
        }
        if !sorted(self.streams.iter().map(|stream| stream.name.as_str())) {
            return Err(ProfileError::NotSorted("streams"));
        }
        if !sorted(self.templates.iter().map(|template| template.text.as_str())) {
            return Err(ProfileError::NotSorted("templates"));
        }
        let streams = self.streams.len();
        for (n, template) in self.templates.iter().enumerate() {
            let wrong = if template.text.is_empty()
                || template.text.len() > limits.template_bytes + grown(&template.text)
            {
                "the text is empty or too long"
            } else if template.text.split(' ').any(str::is_empty) || template.text.split(' ').count() > limits.tokens {
                "the text has empty or too many tokens"
            } else if template.example.len() > limits.example_bytes {
                "the example is too long"
            } else if template.first.stream.max(template.last.stream) as usize >= streams
                || template.streams.end() > streams
            {
                "no such stream"
            } else if template.runs.end() > self.runs.len() {
                "no such run"
            } else {
                continue;
            };
            return Err(ProfileError::Template(n, wrong));
        }
        Ok(())
    }

    /// Adds what another node saw of the same run, or what another run said. Runs and streams of one name are one.
    pub fn merge(&mut self, other: &Self) {
        let limits = self.limits.united(other.limits);
        let stream_names = self
            .streams
            .iter()
            .chain(&other.streams)
            .map(|stream| stream.name.as_str());
        let streams = names::union(stream_names, limits.streams);
        let runs = names::union(self.runs.iter().chain(&other.runs).map(String::as_str), limits.runs);
        let mut tree = Tree::new(limits.fan_out, limits.templates);
        tree.press(self.shortfalls.pressure.max(other.shortfalls.pressure));
        for profile in [&*self, other] {
            let stream_numbers = names::numbers(profile.streams.iter().map(|stream| stream.name.as_str()), &streams);
            let run_numbers = names::numbers(profile.runs.iter().map(String::as_str), &runs);
            for template in &profile.templates {
                tree.add(
                    &template.text,
                    template.renumbered(&stream_numbers, &streams, &run_numbers),
                );
            }
        }
        let mut shortfalls = self.shortfalls;
        shortfalls.blank = shortfalls.blank.saturating_add(other.shortfalls.blank);
        shortfalls.cut = shortfalls.cut.saturating_add(other.shortfalls.cut);
        shortfalls.not_utf8 = shortfalls.not_utf8.saturating_add(other.shortfalls.not_utf8);
        shortfalls.stream_unnamed = shortfalls
            .stream_unnamed
            .saturating_add(other.shortfalls.stream_unnamed);
        let mut merged: Vec<Option<Stream>> = vec![None; streams.len()];
        for profile in [&*self, other] {
            let numbers = names::numbers(profile.streams.iter().map(|stream| stream.name.as_str()), &streams);
            for (stream, number) in profile.streams.iter().zip(numbers) {
                let name = &streams[number as usize];
                let merged = &mut merged[number as usize];
                let known = merged.get_or_insert_with(|| Stream {
                    name: name.clone(),
                    ..stream.clone()
                });
                known.lines = known.lines.max(stream.lines);
                if stream.group < known.group {
                    known.group.clone_from(&stream.group);
                }
            }
        }
        *self = Self {
            version: PROFILE_VERSION,
            limits,
            lines: self.lines.saturating_add(other.lines),
            shortfalls,
            runs,
            streams: merged.into_iter().flatten().collect(),
            templates: Vec::new(),
        };
        self.take(&tree);
    }

    /// Takes the templates out of a tree.
    pub(crate) fn take(&mut self, tree: &Tree<Seen>) {
        self.shortfalls.pressure = tree.pressure();
        self.templates = tree
            .texts()
            .into_iter()
            .map(|(text, seen)| Template::new(text, seen.clone()))
            .collect();
        self.templates.sort_by(|a, b| a.text.cmp(&b.text));
    }
}

/// How many bytes marks may have added to a shape: they are longer than the shortest words that they stand for.
fn grown(text: &str) -> usize {
    let marks = text.split(' ').filter(|token| [MANY, MANY_ALARMING].contains(token));
    marks.map(|mark| mark.len() - 1).sum()
}

fn sorted<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    let mut last: Option<&str> = None;
    names.all(|name| last.replace(name).is_none_or(|last| last < name))
}

impl Template {
    fn new(text: String, seen: Seen) -> Self {
        let Seen {
            count,
            first,
            last,
            example,
            streams,
            runs,
        } = seen;
        Self {
            text,
            count,
            first: first.into(),
            last: last.into(),
            example,
            streams,
            runs,
        }
    }

    pub(crate) fn renumbered(&self, streams: &[u32], names: &[String], runs: &[u32]) -> Seen {
        let spot = |place: Place| {
            let stream = streams.get(place.stream as usize).copied().unwrap_or_default();
            Spot {
                line: place.line,
                order: names.get(stream as usize).map_or(0, |name| order(name)),
                stream,
            }
        };
        Seen {
            count: self.count,
            first: spot(self.first),
            last: spot(self.last),
            example: self.example.clone(),
            streams: self.streams.renumbered(streams),
            runs: self.runs.renumbered(runs),
        }
    }
}

impl Profile {
    /// Puts the streams in the order of their names.
    pub(crate) fn sort_streams(&mut self) {
        let names = names::union(self.streams.iter().map(|stream| stream.name.as_str()), usize::MAX);
        let numbers = names::numbers(self.streams.iter().map(|stream| stream.name.as_str()), &names);
        let runs: Vec<u32> = (0..self.runs.len() as u32).collect();
        for template in &mut self.templates {
            let seen = template.renumbered(&numbers, &names, &runs);
            *template = Template::new(std::mem::take(&mut template.text), seen);
        }
        self.streams.sort_by(|a, b| a.name.cmp(&b.name));
    }
}
