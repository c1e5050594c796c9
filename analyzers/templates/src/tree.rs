//! Prefix tree of shapes, with a limited number of words at every node.
//!
//! Related to Drain's fixed-depth tree: the first level is the number of tokens (and a flag for lines that announce
//! trouble, so that a flood of prose cannot absorb an error), followed by one level a token. A node with more than
//! `fan_out` different words treats all of them as values: its branches are merged into one, [`MANY`].
//!
//! **Order does not matter.** The words that meet at a node depend on the branches merged above it, and on the lines;
//! both only grow. A node is merged exactly when more than `fan_out` words ever reach it, in any order, and by
//! induction from the root the tree is a function of the set of lines. The same holds for trees that are built
//! separately and merged.
//!
//! The one exception is *pressure*: if templates or nodes exceed their limits although each node respects its own,
//! `fan_out` is halved until they fit. The number of halvings can depend on the order; it is counted and reported.

use std::collections::BTreeMap;

use crate::alarm::alarming;

/// Placeholder in a template for more different words than a node distinguishes. For ids it counts as
/// [`MASK`](crate::mask::MASK).
pub(crate) const MANY: &str = "<+>";
/// [`MANY`] in lines that announce trouble: the alarm word may be one of the many.
pub(crate) const MANY_ALARMING: &str = "<!>";

/// Data of a leaf.
pub(crate) trait LeafEntry {
    /// Adds the data of `other`, which has become the same template.
    fn absorb(&mut self, other: Self);
}

#[derive(Debug, Default)]
struct TreeNode {
    word: Box<str>,
    /// Sorted by word.
    children: Vec<u32>,
    entry: Option<u32>,
    /// True if the only child stands for every word.
    many: bool,
}

#[derive(Debug)]
pub(crate) struct TemplateTree<E> {
    roots: BTreeMap<(usize, bool), u32>,
    nodes: Vec<TreeNode>,
    free_nodes: Vec<u32>,
    entries: Vec<Option<E>>,
    free_entries: Vec<u32>,
    fan_out: usize,
    max_entries: usize,
    /// Number of merges; entry numbers are valid until it changes.
    merges: u64,
    pressure: u32,
}

/// Mean number of nodes a template, as a limit.
const NODES_PER_ENTRY: usize = 16;

impl<E: LeafEntry> TemplateTree<E> {
    pub(crate) fn new(fan_out: usize, max_entries: usize) -> Self {
        Self {
            roots: BTreeMap::new(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            entries: Vec::new(),
            free_entries: Vec::new(),
            fan_out,
            max_entries,
            merges: 0,
            pressure: 0,
        }
    }

    pub(crate) fn merges(&self) -> u64 {
        self.merges
    }

    /// Returns the number of times that the fan-out was halved for lack of room.
    pub(crate) fn pressure(&self) -> u32 {
        self.pressure
    }

    pub(crate) fn entry(&mut self, number: u32) -> Option<&mut E> {
        self.entries.get_mut(number as usize).and_then(Option::as_mut)
    }

    /// Halves the fan-out until the pressure is `times`, that of a profile to merge.
    pub(crate) fn press(&mut self, times: u32) {
        while self.pressure < times && self.fan_out > 1 {
            self.halve();
        }
    }

    /// Finds or creates the template of `shape` and merges `entry` into it. The returned number is valid until the next
    /// merge.
    pub(crate) fn add(&mut self, shape: &str, entry: E) -> u32 {
        let leaf = self.leaf(shape);
        if let Some(number) = self.nodes[leaf as usize].entry {
            if let Some(old) = self.entry(number) {
                old.absorb(entry);
            }
            return number;
        }
        let number = self.keep(entry);
        self.nodes[leaf as usize].entry = Some(number);
        let full = |tree: &Self| {
            tree.entries.len() - tree.free_entries.len() > tree.max_entries
                || tree.nodes.len() - tree.free_nodes.len() > tree.max_entries * NODES_PER_ENTRY
        };
        if !full(self) {
            return number;
        }
        while full(self) && self.fan_out > 1 {
            self.halve();
        }
        let leaf = self.leaf(shape);
        self.nodes[leaf as usize].entry.unwrap_or(number)
    }

    fn keep(&mut self, entry: E) -> u32 {
        if let Some(number) = self.free_entries.pop() {
            self.entries[number as usize] = Some(entry);
            return number;
        }
        self.entries.push(Some(entry));
        (self.entries.len() - 1) as u32
    }

    fn node(&mut self, word: &str) -> u32 {
        let node = TreeNode {
            word: word.into(),
            ..TreeNode::default()
        };
        if let Some(number) = self.free_nodes.pop() {
            self.nodes[number as usize] = node;
            return number;
        }
        self.nodes.push(node);
        (self.nodes.len() - 1) as u32
    }

    /// Walks down to the node at which `shape` ends; creates missing nodes.
    fn leaf(&mut self, shape: &str) -> u32 {
        let key = (
            shape.split(' ').count(),
            shape.contains(MANY_ALARMING) || alarming(shape),
        );
        let root = match self.roots.get(&key) {
            Some(root) => *root,
            None => {
                let root = self.node("");
                self.roots.insert(key, root);
                root
            }
        };
        shape.split(' ').fold(root, |at, word| self.child(at, word))
    }

    fn child(&mut self, at: u32, word: &str) -> u32 {
        if (word == MANY || word == MANY_ALARMING) && !self.nodes[at as usize].many {
            self.merge_children(at);
        }
        if self.nodes[at as usize].many {
            if let Some(only) = self.nodes[at as usize].children.first() {
                return *only;
            }
            let only = self.node(MANY);
            self.nodes[at as usize].children.push(only);
            return only;
        }
        match self.position(at, word) {
            Ok(place) => self.nodes[at as usize].children[place],
            Err(place) => {
                let child = self.node(word);
                self.nodes[at as usize].children.insert(place, child);
                self.bound(at);
                let node = &self.nodes[at as usize];
                if node.many { node.children[0] } else { child }
            }
        }
    }

    fn position(&self, at: u32, word: &str) -> Result<usize, usize> {
        let children = &self.nodes[at as usize].children;
        children.binary_search_by(|child| (*self.nodes[*child as usize].word).cmp(word))
    }

    fn bound(&mut self, at: u32) {
        if self.nodes[at as usize].children.len() > self.fan_out {
            self.merge_children(at);
        }
    }

    /// Treats every word at this node as a value.
    fn merge_children(&mut self, at: u32) {
        self.merges += 1;
        let node = &mut self.nodes[at as usize];
        node.many = true;
        let children = std::mem::take(&mut node.children);
        let mut children = children.into_iter();
        let Some(first) = children.next() else { return };
        self.nodes[first as usize].word = MANY.into();
        for other in children {
            self.merge(first, other);
        }
        self.nodes[at as usize].children.push(first);
    }

    /// Merges `from` into `into`. The recursion depth is the number of tokens of a shape.
    fn merge(&mut self, into: u32, from: u32) {
        let node = std::mem::take(&mut self.nodes[from as usize]);
        self.free_nodes.push(from);
        match (self.nodes[into as usize].entry, node.entry) {
            (Some(kept), Some(gone)) => {
                self.free_entries.push(gone);
                if let Some(gone) = self.entries[gone as usize].take()
                    && let Some(kept) = self.entry(kept)
                {
                    kept.absorb(gone);
                }
            }
            (None, Some(entry)) => self.nodes[into as usize].entry = Some(entry),
            (_, None) => {}
        }
        if node.many && !self.nodes[into as usize].many {
            self.merge_children(into);
        }
        for child in node.children {
            if self.nodes[into as usize].many {
                match self.nodes[into as usize].children.first() {
                    Some(only) => self.merge(*only, child),
                    None => {
                        self.nodes[child as usize].word = MANY.into();
                        self.nodes[into as usize].children.push(child);
                    }
                }
                continue;
            }
            match self.position(into, &self.nodes[child as usize].word) {
                Ok(place) => self.merge(self.nodes[into as usize].children[place], child),
                Err(place) => {
                    self.nodes[into as usize].children.insert(place, child);
                    self.bound(into);
                }
            }
        }
    }

    fn halve(&mut self) {
        self.fan_out = (self.fan_out / 2).max(1);
        self.pressure += 1;
        self.merges += 1;
        let mut open: Vec<u32> = self.roots.values().copied().collect();
        while let Some(at) = open.pop() {
            self.bound(at);
            open.extend(&self.nodes[at as usize].children);
        }
    }

    /// Returns every template with its text, sorted by text within a length.
    pub(crate) fn texts(&self) -> Vec<(String, &E)> {
        let mut found = Vec::new();
        let mut text = String::new();
        for ((_, alarming), root) in &self.roots {
            let many = if *alarming { MANY_ALARMING } else { MANY };
            for child in &self.nodes[*root as usize].children {
                self.collect(*child, many, &mut text, &mut found);
            }
        }
        found
    }

    fn collect<'a>(&'a self, at: u32, many: &str, text: &mut String, found: &mut Vec<(String, &'a E)>) {
        let node = &self.nodes[at as usize];
        let length = text.len();
        if length > 0 {
            text.push(' ');
        }
        text.push_str(if &*node.word == MANY { many } else { &node.word });
        if let Some(entry) = node.entry.and_then(|number| self.entries[number as usize].as_ref()) {
            found.push((text.clone(), entry));
        }
        for child in &node.children {
            self.collect(*child, many, text, found);
        }
        text.truncate(length);
    }

    #[cfg(test)]
    pub(crate) fn nodes(&self) -> usize {
        self.nodes.len() - self.free_nodes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{LeafEntry, TemplateTree};

    impl LeafEntry for u64 {
        fn absorb(&mut self, other: Self) {
            *self += other;
        }
    }

    fn check(fan_out: usize, lines: &[&str], expect: &[(&str, u64)]) {
        for rotation in 0..lines.len() {
            let mut tree = TemplateTree::new(fan_out, 1000);
            for line in lines.iter().cycle().skip(rotation).take(lines.len()) {
                tree.add(line, 1);
            }
            let texts = tree.texts();
            let found: Vec<(&str, u64)> = texts.iter().map(|(text, count)| (text.as_str(), **count)).collect();
            assert_eq!(found, expect, "started at line {rotation}");
        }
    }

    #[test]
    fn words_within_the_fan_out_stay_apart() {
        check(3, &["a x", "b x", "a x", "c x"], &[("a x", 2), ("b x", 1), ("c x", 1)]);
    }

    #[test]
    fn more_words_than_the_fan_out_become_one_value_and_so_may_what_follows() {
        check(2, &["a x", "b y", "c z", "a x"], &[("<+> <+>", 4)]);
        check(2, &["a x", "b x", "c y", "a x"], &[("<+> x", 3), ("<+> y", 1)]);
    }

    #[test]
    fn lengths_and_alarms_do_not_mix() {
        check(
            1,
            &["a b", "c d", "c error", "a"],
            &[("a", 1), ("<+> <+>", 2), ("c error", 1)],
        );
    }

    #[test]
    fn a_template_read_back_brings_its_value_with_it() {
        check(5, &["a <+> c", "a x c", "a y d"], &[("a <+> c", 2), ("a <+> d", 1)]);
    }

    #[test]
    fn a_template_read_back_stays_with_the_alarms_when_its_alarming_word_is_one_of_many() {
        check(1, &["disk error", "disk failure"], &[("disk <!>", 2)]);
        check(
            5,
            &["disk <!>", "disk error", "disk sda"],
            &[("disk sda", 1), ("disk <!>", 2)],
        );
    }

    #[test]
    fn pressure_holds_the_bound_and_loses_no_count() {
        let mut tree = TemplateTree::new(100, 40);
        for n in 0_u64..5_000 {
            tree.add(&format!("w{} w{} w{} w{}", n % 7, n % 11, n % 13, n % 17), 1);
        }
        assert!(tree.pressure() > 0);
        assert!(tree.texts().len() <= 40);
        assert!(tree.nodes() <= 40 * super::NODES_PER_ENTRY);
        assert_eq!(tree.texts().iter().map(|(_, count)| **count).sum::<u64>(), 5_000);
    }
}
