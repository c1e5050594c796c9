//! An unremarkable line costs one scan and no allocation: most lines are unremarkable, and the agent must do no harm
//! (RG-12).

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rankguard_faults::SignatureMatcher;
use rankguard_faults::line::{LineClock, clean, parse};
use rankguard_model::EvidenceSource;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: hands every request to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about `pointer` and `layout` is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_line_that_matches_nothing_allocates_nothing() {
    let matcher = SignatureMatcher::builtin();
    let lines = [
        "2025-01-21 04:41:44,283 step 100 of 5000, 2.31 s",
        "usb 1-2: Product: ASM107x",
        "[rank3]: epoch 3 begins",
    ];
    let read = |raw: &str| {
        let cleaned = clean(raw);
        let parsed = parse(&cleaned, &LineClock::default());
        assert!(matcher.marks(EvidenceSource::JobLog, parsed.text).is_empty(), "{raw}");
    };
    lines.iter().for_each(|line| read(line));
    let before = ALLOCATIONS.with(Cell::get);
    lines.iter().for_each(|line| read(line));
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}
