//! Values that many entries share are held once.

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;

use crate::dump::Frame;

#[derive(Default)]
pub(super) struct Interner {
    texts: BTreeSet<Arc<str>>,
    shapes: BTreeSet<Arc<[Vec<i64>]>>,
    lists: BTreeSet<Arc<[Arc<str>]>>,
    stacks: BTreeSet<Arc<[Frame]>>,
}

impl Interner {
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        shared(&mut self.texts, text)
    }

    pub(super) fn shapes(&mut self, shapes: Vec<Vec<i64>>) -> Arc<[Vec<i64>]> {
        shared(&mut self.shapes, &shapes[..])
    }

    pub(super) fn list(&mut self, list: Vec<Arc<str>>) -> Arc<[Arc<str>]> {
        shared(&mut self.lists, &list[..])
    }

    pub(super) fn stack(&mut self, frames: Vec<Frame>) -> Arc<[Frame]> {
        shared(&mut self.stacks, &frames[..])
    }
}

fn shared<T: ?Sized + Ord>(known: &mut BTreeSet<Arc<T>>, value: &T) -> Arc<T>
where
    Arc<T>: Borrow<T> + for<'v> From<&'v T>,
{
    if let Some(found) = known.get(value) {
        return found.clone();
    }
    let new: Arc<T> = Arc::from(value);
    known.insert(new.clone());
    new
}
