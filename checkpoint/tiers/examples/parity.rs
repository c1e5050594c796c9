//! Speed of the parity code on one core, beside a copy of the same bytes: interleaved rounds, the first discarded,
//! medians. Measured is processor time of this thread, which other load affects less.
//!
//! `cargo run --release -p rankguard-checkpoint-tiers --example parity -- [MiB] [rounds] [KiB of a piece]`

#![allow(clippy::print_stdout, reason = "a program that reports figures")]

use std::error::Error;
use std::fs;

use rankguard_checkpoint_tiers::parity::{ErasureCode, STRIPE_BYTES};

/// Number of nodes of a group.
const MEMBERS: usize = 4;

/// Number of its sums.
const SUMS: [usize; 2] = [1, 2];

/// Measurements in order: a copy, then for each number of sums the encoding, the restore of as many members, and of
/// one.
const TIMED: usize = 1 + 3 * SUMS.len();

type Pieces = Vec<Option<Vec<u8>>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let mib: usize = args.next().map_or(Ok(256), |text| text.parse())?;
    let rounds: usize = args.next().map_or(Ok(9), |text| text.parse())?;
    let usual = usize::try_from(STRIPE_BYTES)?;
    let piece = args
        .next()
        .map_or(Ok(usual), |text| text.parse().map(|kib: usize| kib << 10))?;
    let stripes: Vec<Vec<Vec<u8>>> = (0..(mib << 20) / (MEMBERS * piece))
        .map(|stripe| (0..MEMBERS).map(|nth| content(stripe * MEMBERS + nth, piece)).collect())
        .collect();
    let bytes = stripes.len() * MEMBERS * piece;
    let mut copies = stripes.clone();

    let mut times: [Vec<f64>; TIMED] = Default::default();
    for round in 0..=rounds {
        let mut took = Vec::with_capacity(TIMED);
        took.push(timed(|| {
            for (copy, stripe) in copies.iter_mut().flatten().zip(stripes.iter().flatten()) {
                copy.copy_from_slice(stripe);
            }
            Ok(())
        })?);
        for sums in SUMS {
            let code = ErasureCode::new(MEMBERS, sums)?;
            let mut made = Vec::new();
            took.push(timed(|| {
                for stripe in &stripes {
                    made.push(code.encode(stripe)?);
                }
                Ok(())
            })?);
            for lost in [sums, 1] {
                took.push(restored(&code, &stripes, &made, lost)?);
            }
        }
        if round > 0 {
            times.iter_mut().zip(took).for_each(|(times, took)| times.push(took));
        }
    }
    let median = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let medians = times.each_mut().map(median);
    let rate = |bytes: usize, seconds: f64| bytes as f64 / seconds / 1e9;
    let memcpy = medians[0];
    println!(
        "{} MiB in pieces of {} KiB, medians of {rounds}, GB of members a second of one core, and time over the copy's",
        bytes >> 20,
        piece >> 10
    );
    println!("memcpy                    {:6.2}", rate(bytes, memcpy));
    for (sums, of) in SUMS.into_iter().zip(medians[1..].chunks(3)) {
        let line = |what: &str, seconds: f64, lost: usize| {
            let back = match lost {
                0 => String::new(),
                lost => format!("; {:.2} GB/s brought back", rate(bytes * lost / MEMBERS, seconds)),
            };
            println!(
                "{MEMBERS}+{sums} {what:<21} {:6.2}  {:.2}x{back}",
                rate(bytes, seconds),
                seconds / memcpy
            );
        };
        line("sums made", of[0], 0);
        line(&format!("{sums} lost, brought back"), of[1], sums);
        if sums > 1 {
            line("1 lost, brought back", of[2], 1);
        }
    }
    Ok(())
}

/// Non-zero content, different for each piece.
fn content(nth: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at ^ at >> 9 ^ nth << 3) as u8).collect()
}

/// Returns the time to restore the first `lost` members of every stripe.
fn restored(
    code: &ErasureCode,
    stripes: &[Vec<Vec<u8>>],
    made: &[Vec<Vec<u8>>],
    lost: usize,
) -> Result<f64, Box<dyn Error>> {
    let there = |pieces: &[Vec<u8>], from: usize| -> Pieces {
        let piece = |(nth, piece): (usize, &Vec<u8>)| (nth >= from).then(|| piece.clone());
        pieces.iter().enumerate().map(piece).collect()
    };
    let mut left: Vec<(Pieces, Pieces)> = stripes
        .iter()
        .zip(made)
        .map(|(stripe, sums)| (there(stripe, lost), there(sums, 0)))
        .collect();
    let seconds = timed(|| {
        for (pieces, sums) in &mut left {
            code.restore(pieces, sums)?;
        }
        Ok(())
    })?;
    for ((pieces, _), stripe) in left.iter().zip(stripes) {
        if !pieces.iter().flatten().eq(stripe) {
            return Err("other bytes came back".into());
        }
    }
    Ok(seconds)
}

fn timed(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let started = processor_time()?;
    work()?;
    Ok(processor_time()? - started)
}

/// Returns the processor time of this thread in seconds. The kernel counts in ticks, so measurements must span many.
fn processor_time() -> Result<f64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = text.split(' ').next().ok_or("an empty schedstat")?;
    Ok(nanos.parse::<f64>()? / 1e9)
}
