//! Questions to failure history, asked of the canonical tables of any data set, and published figures computed again.
//!
//! - [`studies`]: what can be asked; each [`Study`] gives an [`Outcome`]: definition, population, window, tables, plots.
//! - [`figures`]: the published figures of a data set beside what its files give, each with its definition.
//! - [`report`]: outcomes as one HTML page that needs nothing else; [`Plot::drawing`] is one picture, as SVG or item by item.
//!
//! Invariants: no rate without a population and no repair time that the source does not have: [`StudyError::Missing`]
//! says what to give. Counts are of rows as published, repeats included, unless the definition says otherwise.
//!
//! Absent: reading files (that is `rankguard-datasets`; only traces of operations and flight-recorder dumps, which have no
//! table, are read for their figures), stragglers and hangs (`rankguard diagnose`), fits with censoring.

mod error;
mod outcome;
mod plot;
mod report;
mod reproduced;
mod studies;

pub use error::StudyError;
pub use outcome::{Cell, Outcome, Table};
pub use plot::{Anchor, Colour, Drawing, INK, Item, Plot, Shape};
pub use report::report;
pub use reproduced::{Comparison, Figure, PublishedRange, figures};
pub use studies::{Options, Study, studies};
