//! Profile of one run or many: templates with counts, places, streams and runs.

use serde::{Deserialize, Serialize};

use crate::cache;
use crate::id::TemplateId;
use crate::limits::MinerLimits;
use crate::marks::NumberSet;
use crate::names;
use crate::tree::{LeafEntry, MANY, MANY_ALARMING, TemplateTree};

/// Version of [`TemplateProfile`] that this crate writes, and the only one that it reads.
pub const PROFILE_VERSION: u32 = 1;

/// Source of lines in written order: a rank's output, a node's kernel log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogStream {
    /// Name such as `rank 3` or `node-7 kernel`.
    pub name: String,
    /// Comparison group: streams of one group are expected to show the same templates.
    pub group: String,
    /// Number of the last line.
    pub lines: u64,
}

/// Position of a line. Of places in several streams the lowest line number is the first, because streams have no common
/// order; a digest of the streams' names decides between equal numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinePosition {
    /// Line number, from 1.
    pub line: u64,
    /// Index of the stream in [`TemplateProfile::streams`].
    pub stream: u32,
}

/// Template with its statistics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Text: `<*>` for a value by form, `<+>` (`<!>` if the line announces trouble) for a position with too many words.
    pub text: String,
    /// Number of lines.
    pub count: u64,
    /// Place of the first line.
    pub first: LinePosition,
    /// Place of the last line.
    pub last: LinePosition,
    /// First line in its original form, truncated to a limit.
    pub example: String,
    pub(crate) streams: NumberSet,
    pub(crate) runs: NumberSet,
}

impl Template {
    /// Returns the id, equal in every run and on every node.
    pub fn id(&self) -> TemplateId {
        TemplateId::of(&self.text)
    }

    /// Returns the number of streams that showed the template.
    pub fn stream_count(&self) -> usize {
        self.streams.len()
    }

    /// Returns the number of runs that showed the template.
    pub fn run_count(&self) -> usize {
        self.runs.len()
    }

    /// Iterates over the streams that showed the template, as indexes into [`TemplateProfile::streams`].
    pub fn streams(&self) -> impl Iterator<Item = u32> + '_ {
        self.streams.iter()
    }
}

/// Numbers of lines that were not recorded completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IncompleteLines {
    /// Lines without any token; they have no template.
    pub blank: u64,
    /// Lines truncated at the limits on lines and templates.
    pub cut: u64,
    /// Lines that are not UTF-8, read with replacement characters.
    pub not_utf8: u64,
    /// Lines of streams beyond the limit, counted under [`OTHERS`].
    pub stream_unnamed: u64,
    /// Number of times that the fan-out was halved to meet the limit on templates. If it is not zero, the words that
    /// count as values can depend on the order of lines.
    pub pressure: u32,
}

/// Templates of one run or many. Lists are sorted, so that the same lines give the same bytes.
///
/// The counts of all templates and [`IncompleteLines::blank`] add up to `lines`. Merging is commutative and associative.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateProfile {
    /// Format version, [`PROFILE_VERSION`].
    pub version: u32,
    /// Limits under which the profile was made.
    pub limits: MinerLimits,
    /// Number of lines read.
    pub lines: u64,
    /// Lines that were not recorded completely.
    pub shortfalls: IncompleteLines,
    /// Names of the runs, sorted.
    pub runs: Vec<String>,
    /// Streams, sorted by name.
    pub streams: Vec<LogStream>,
    /// Templates, sorted by text.
    pub templates: Vec<Template>,
}

/// Error of a profile that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The profile has another version.
    #[error("`version` is {0}; this program reads {PROFILE_VERSION}")]
    Version(u32),
    /// A list is longer than the profile's own limits allow.
    #[error("`{0}` is longer than the bounds in `limits`")]
    TooLong(&'static str),
    /// A list is not sorted or contains a name twice.
    #[error("`{0}` is not sorted or has a name twice")]
    NotSorted(&'static str),
    /// A template is empty, too long, or references an unknown stream or run.
    #[error("`templates[{0}]` is malformed: {1}")]
    Template(usize, &'static str),
}

/// Place with an order that is independent of stream numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OrderedPosition {
    pub(crate) line: u64,
    /// [`order`] of the stream's name.
    pub(crate) order: u64,
    pub(crate) stream: u32,
}

impl From<OrderedPosition> for LinePosition {
    fn from(spot: OrderedPosition) -> Self {
        Self {
            line: spot.line,
            stream: spot.stream,
        }
    }
}

/// Returns the tie-breaker between equal line numbers of different streams.
pub(crate) fn order(name: &str) -> u64 {
    cache::hash(name.as_bytes())
}

/// Statistics in the leaves of the tree while lines or profiles are added.
#[derive(Clone, Debug)]
pub(crate) struct LeafStatistics {
    pub(crate) count: u64,
    pub(crate) first: OrderedPosition,
    pub(crate) last: OrderedPosition,
    pub(crate) example: String,
    pub(crate) streams: NumberSet,
    pub(crate) runs: NumberSet,
}

impl LeafEntry for LeafStatistics {
    fn absorb(&mut self, other: Self) {
        self.count = self.count.saturating_add(other.count);
        // Merged runs may have the same place: the smaller text is retained, independently of order.
        if (other.first, &other.example) < (self.first, &self.example) {
            self.first = other.first;
            self.example = other.example;
        }
        self.last = self.last.max(other.last);
        self.streams.unite(&other.streams);
        self.runs.unite(&other.runs);
    }
}

impl Default for TemplateProfile {
    fn default() -> Self {
        Self::empty(MinerLimits::default())
    }
}

impl TemplateProfile {
    /// Creates an empty profile.
    pub fn empty(limits: MinerLimits) -> Self {
        Self {
            version: PROFILE_VERSION,
            limits: limits.checked(),
            lines: 0,
            shortfalls: IncompleteLines::default(),
            runs: Vec::new(),
            streams: Vec::new(),
            templates: Vec::new(),
        }
    }

    /// Validates a profile that was read from a file, on which all other functions rely.
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

    /// Merges the profile of another node or run. Runs and streams of the same name are joined.
    pub fn merge(&mut self, other: &Self) {
        let limits = self.limits.united(other.limits);
        let stream_names = self
            .streams
            .iter()
            .chain(&other.streams)
            .map(|stream| stream.name.as_str());
        let streams = names::union(stream_names, limits.streams);
        let runs = names::union(self.runs.iter().chain(&other.runs).map(String::as_str), limits.runs);
        let mut tree = TemplateTree::new(limits.fan_out, limits.templates);
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
        let mut merged: Vec<Option<LogStream>> = vec![None; streams.len()];
        for profile in [&*self, other] {
            let numbers = names::numbers(profile.streams.iter().map(|stream| stream.name.as_str()), &streams);
            for (stream, number) in profile.streams.iter().zip(numbers) {
                let name = &streams[number as usize];
                let merged = &mut merged[number as usize];
                let known = merged.get_or_insert_with(|| LogStream {
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

    /// Takes the templates from a tree.
    pub(crate) fn take(&mut self, tree: &TemplateTree<LeafStatistics>) {
        self.shortfalls.pressure = tree.pressure();
        self.templates = tree
            .texts()
            .into_iter()
            .map(|(text, seen)| Template::new(text, seen.clone()))
            .collect();
        self.templates.sort_by(|a, b| a.text.cmp(&b.text));
    }
}

/// Returns the bytes by which marks may have lengthened a shape: they are longer than the shortest words they replace.
fn grown(text: &str) -> usize {
    let marks = text.split(' ').filter(|token| [MANY, MANY_ALARMING].contains(token));
    marks.map(|mark| mark.len() - 1).sum()
}

fn sorted<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    let mut last: Option<&str> = None;
    names.all(|name| last.replace(name).is_none_or(|last| last < name))
}

impl Template {
    fn new(text: String, seen: LeafStatistics) -> Self {
        let LeafStatistics {
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

    pub(crate) fn renumbered(&self, streams: &[u32], names: &[String], runs: &[u32]) -> LeafStatistics {
        let spot = |place: LinePosition| {
            let stream = streams.get(place.stream as usize).copied().unwrap_or_default();
            OrderedPosition {
                line: place.line,
                order: names.get(stream as usize).map_or(0, |name| order(name)),
                stream,
            }
        };
        LeafStatistics {
            count: self.count,
            first: spot(self.first),
            last: spot(self.last),
            example: self.example.clone(),
            streams: self.streams.renumbered(streams),
            runs: self.runs.renumbered(runs),
        }
    }
}

impl TemplateProfile {
    /// Sorts the streams by name.
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
