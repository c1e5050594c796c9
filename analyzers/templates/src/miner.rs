//! Miner: collects lines into a profile.

use std::borrow::Cow;

use crate::cache::{self, ShapeCache};
use crate::id::TemplateId;
use crate::limits::MinerLimits;
use crate::marks::NumberSet;
use crate::mask::{ShapeLimits, mask};
use crate::names::OTHERS;
use crate::profile::{
    IncompleteLines, LeafStatistics, LogStream, OrderedPosition, PROFILE_VERSION, TemplateProfile, order,
};
use crate::tree::TemplateTree;

/// Handle of a stream, valid for the miner that returned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamNumber(u32);

/// Miner of the templates of one run.
pub struct Miner {
    limits: MinerLimits,
    run: String,
    lines: u64,
    shortfalls: IncompleteLines,
    streams: Vec<LogStream>,
    /// [`order`] of each stream.
    orders: Vec<u64>,
    /// True if streams beyond the limit were added.
    others: bool,
    tree: TemplateTree<LeafStatistics>,
    cache: ShapeCache,
    /// Merge count of the tree when the cache was last filled.
    merges: u64,
    shape: Vec<u8>,
}

impl Miner {
    /// Creates a miner for a run of this name.
    pub fn new(run: &str, limits: MinerLimits) -> Self {
        let limits = limits.checked();
        Self {
            limits,
            run: bounded(run, limits.example_bytes).to_owned(),
            lines: 0,
            shortfalls: IncompleteLines::default(),
            streams: Vec::new(),
            orders: Vec::new(),
            others: false,
            tree: TemplateTree::new(limits.fan_out, limits.templates),
            cache: ShapeCache::new(),
            merges: 0,
            shape: Vec::new(),
        }
    }

    /// Returns the stream of this name; creates it with `group`, the streams to compare it with.
    pub fn stream(&mut self, name: &str, group: &str) -> StreamNumber {
        let name = bounded(name, self.limits.example_bytes);
        let group = bounded(group, self.limits.example_bytes);
        if let Some(known) = self.streams.iter().position(|stream| stream.name == name) {
            return StreamNumber(known as u32);
        }
        if self.streams.len() < self.limits.streams {
            self.streams.push(LogStream {
                name: name.to_owned(),
                group: group.to_owned(),
                lines: 0,
            });
        } else if !self.others {
            self.others = true;
            self.streams.push(LogStream {
                name: OTHERS.to_owned(),
                group: OTHERS.to_owned(),
                lines: 0,
            });
        }
        self.orders
            .extend(self.streams.get(self.orders.len()).map(|stream| order(&stream.name)));
        StreamNumber((self.streams.len() - 1) as u32)
    }

    /// Adds a line without its line end. `number` counts the stream's lines from 1.
    pub fn learn(&mut self, stream: StreamNumber, number: u64, line: &[u8]) {
        let Some(order) = self.orders.get(stream.0 as usize) else {
            return;
        };
        let spot = OrderedPosition {
            line: number,
            order: *order,
            stream: stream.0,
        };
        let Some(source) = self.streams.get_mut(stream.0 as usize) else {
            return;
        };
        self.lines += 1;
        source.lines = source.lines.max(number);
        if source.name == OTHERS {
            self.shortfalls.stream_unnamed += 1;
        }
        let text = text(line, self.limits.line_bytes);
        if matches!(text, Cow::Owned(_)) {
            self.shortfalls.not_utf8 += 1;
        }
        let bounds = ShapeLimits {
            tokens: self.limits.tokens,
            bytes: self.limits.template_bytes,
        };
        let mut shape = std::mem::take(&mut self.shape);
        let masked = mask(text.as_bytes(), bounds, &mut shape);
        if masked.cut || line.len() > self.limits.line_bytes {
            self.shortfalls.cut += 1;
        }
        if masked.tokens == 0 {
            self.shortfalls.blank += 1;
        } else {
            self.count(&shape, &text, spot);
        }
        self.shape = shape;
    }

    fn count(&mut self, shape: &[u8], text: &str, spot: OrderedPosition) {
        let hash = cache::hash(shape);
        if let Some(number) = self.cache.get(hash, shape)
            && let Some(seen) = self.tree.entry(number)
        {
            seen.count += 1;
            seen.streams.add(spot.stream);
            seen.last = seen.last.max(spot);
            if spot < seen.first || (spot == seen.first && *text < *seen.example) {
                seen.first = spot;
                seen.example = bounded(text, self.limits.example_bytes).to_owned();
            }
            return;
        }
        let seen = LeafStatistics {
            count: 1,
            first: spot,
            last: spot,
            example: bounded(text, self.limits.example_bytes).to_owned(),
            streams: NumberSet::one(spot.stream),
            runs: NumberSet::one(0),
        };
        let number = self.tree.add(&String::from_utf8_lossy(shape), seen);
        if self.tree.merges() != self.merges {
            self.merges = self.tree.merges();
            self.cache.clear();
        }
        self.cache.put(hash, shape, number);
    }

    /// Returns the profile of the lines added so far.
    pub fn profile(&self) -> TemplateProfile {
        let mut profile = TemplateProfile {
            version: PROFILE_VERSION,
            limits: self.limits,
            lines: self.lines,
            shortfalls: self.shortfalls,
            runs: vec![self.run.clone()],
            streams: self.streams.clone(),
            templates: Vec::new(),
        };
        profile.take(&self.tree);
        profile.sort_streams();
        profile
    }
}

/// Returns the id of this line's template, unless one of its words is masked later by fan-out: a function of the
/// line alone.
pub fn template_id(line: &[u8], limits: MinerLimits) -> Option<TemplateId> {
    shape(line, limits).map(|shape| TemplateId::of(&shape))
}

/// Returns the line with values masked; `None` if nothing remains.
pub fn shape(line: &[u8], limits: MinerLimits) -> Option<String> {
    let limits = limits.checked();
    let mut shape = Vec::new();
    let masked = mask(
        text(line, limits.line_bytes).as_bytes(),
        ShapeLimits {
            tokens: limits.tokens,
            bytes: limits.template_bytes,
        },
        &mut shape,
    );
    (masked.tokens > 0).then(|| String::from_utf8_lossy(&shape).into_owned())
}

/// Decodes the start of a line; a character that the limit splits is left out.
fn text(line: &[u8], limit: usize) -> Cow<'_, str> {
    let start = &line[..line.len().min(limit)];
    match std::str::from_utf8(start) {
        Ok(text) => Cow::Borrowed(text),
        Err(error) if error.error_len().is_none() && start.len() < line.len() => {
            String::from_utf8_lossy(&start[..error.valid_up_to()])
        }
        Err(_) => String::from_utf8_lossy(start),
    }
}

fn bounded(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}
