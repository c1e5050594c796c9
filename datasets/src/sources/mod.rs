//! One file a source. The order decides where two claim equally much.

mod infinitehbd;
mod lanl;
mod titan;

use crate::source::Source;

static SOURCES: &[Source] = &[infinitehbd::SOURCE, titan::SOURCE, lanl::SOURCE];

/// All that is known here.
pub fn sources() -> &'static [Source] {
    SOURCES
}
