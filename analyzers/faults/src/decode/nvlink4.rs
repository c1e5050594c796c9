//! XID 74: link and seven registers of an NVLink up to generation 4.
//!
//! The bit meanings follow the vendor's workflow WORKFLOW_NVLINK_ERR for Hopper, as the XID catalog states it: the
//! first, third, fourth and fifth register count. The vendor names families of bits, not single bits; a bit is shown
//! as `reg0.bit20`.

use rankguard_model::Role;

use super::DecodedMessage;
use super::text::{after, number, words};

/// Family of register bits by meaning, in ascending severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BitFamily {
    /// The bit may be ignored.
    Ignored,
    /// Corrected errors exceeded a threshold; the link works.
    Threshold,
    /// Follows from an error elsewhere; alone it is a case for support.
    Secondary,
    /// As `Secondary`, and the fabric must be reset.
    SecondaryReset,
    /// Significant only if it repeats.
    Repeated,
    /// ECC or parity; a hardware fault if it occurs more than twice on the link.
    EccParity,
    /// The signal on the channel is marginal.
    Signal,
    /// Fault of the hardware or of its seating.
    Hardware,
    /// Not expected outside of laboratories.
    Unexpected,
}

impl BitFamily {
    const fn name(self) -> &'static str {
        match self {
            Self::Ignored => "ignorable",
            Self::Threshold => "ecc-threshold",
            Self::Secondary | Self::SecondaryReset => "secondary",
            Self::Repeated => "link-error",
            Self::EccParity => "ecc-parity",
            Self::Signal => "signal-integrity",
            Self::Hardware => "hardware",
            Self::Unexpected => "unexpected",
        }
    }

    const fn action(self) -> &'static str {
        match self {
            Self::Ignored => "ignore",
            Self::Threshold => "continue; field diagnostics at leisure",
            Self::Secondary => "follow the other errors of the link; alone: contact support",
            Self::SecondaryReset => "reset the fabric; follow the other errors of the link; alone: contact support",
            Self::Repeated => "if it comes again: field diagnostics, contact support",
            Self::EccParity => "more than twice on the link: contact support",
            Self::Signal => "check the seating of the link, run field diagnostics, contact support",
            Self::Hardware => "check mechanics and re-seat, run diagnostics, then contact support",
            Self::Unexpected => "contact support with the raw words",
        }
    }
}

/// Register index, bit numbers and their family.
const BITS: &[(usize, &[u32], BitFamily)] = &[
    (0, &[0, 23, 30], BitFamily::Ignored),
    (0, &[1, 20], BitFamily::Secondary),
    (0, &[4, 5], BitFamily::EccParity),
    (0, &[8, 9, 12, 16, 17, 24, 28], BitFamily::Hardware),
    (0, &[21, 22], BitFamily::Signal),
    (0, &[27, 29], BitFamily::Repeated),
    (2, &[0, 1, 2, 6], BitFamily::EccParity),
    (2, &[13], BitFamily::Unexpected),
    (2, &[16, 17, 18, 19], BitFamily::Repeated),
    (3, &[16, 17], BitFamily::Secondary),
    (3, &[18], BitFamily::SecondaryReset),
    (4, &[18, 19, 21, 22, 24, 25, 27, 28], BitFamily::EccParity),
    (4, &[20, 23, 26, 29], BitFamily::Threshold),
];

fn family(register: usize, bit: u32) -> BitFamily {
    let row = BITS.iter().find(|(at, bits, _)| *at == register && bits.contains(&bit));
    row.map_or(BitFamily::Unexpected, |(_, _, family)| *family)
}

pub(super) fn refine(text: &str, decoded: &mut DecodedMessage) {
    let Some(said) = after(text, "on link") else { return };
    let Some(link) = number(said) else { return };
    decoded.set("link", link);
    let registers = words(said, 7);
    if registers.is_empty() {
        decoded.sentence = format!("NVLink {link} reports a fatal error; its registers are not in the message").into();
        return;
    }
    let hex: Vec<String> = registers.iter().map(|word| format!("{word:#x}")).collect();
    decoded.set("registers", hex.join(" "));
    let mut found: Vec<(BitFamily, String)> = Vec::new();
    for (register, word) in registers.iter().enumerate() {
        // The vendor documents no meaning for the second, sixth and seventh register.
        if ![0, 2, 3, 4].contains(&register) {
            continue;
        }
        for bit in (0..32).filter(|bit| word & (1 << bit) != 0) {
            found.push((family(register, bit), format!("reg{register}.bit{bit}")));
        }
    }
    let Some((worst, _)) = found.iter().max() else {
        decoded.sentence =
            format!("NVLink {link} reports a fatal error; no register that is explained has a bit set").into();
        return;
    };
    let worst = *worst;
    let named: Vec<String> = found
        .iter()
        .map(|(family, bit)| format!("{bit}:{}", family.name()))
        .collect();
    decoded.set("bits", named.join(" "));
    decoded.set("error", worst.name());
    decoded.vendor_action = format!("WORKFLOW_NVLINK_ERR: {}", worst.action()).into();
    (decoded.role, decoded.confidence) = match worst {
        BitFamily::Ignored => (Role::Noise, 0.6),
        BitFamily::Threshold => (Role::Confirmation, 0.5),
        // One line cannot show that the error is alone; the `sympathetic` field lets a join demote it beside another
        // error.
        BitFamily::Secondary | BitFamily::SecondaryReset => (Role::Root, 0.65),
        BitFamily::Repeated | BitFamily::Unexpected => (Role::Root, 0.8),
        BitFamily::EccParity | BitFamily::Signal | BitFamily::Hardware => (Role::Root, 0.92),
    };
    if matches!(worst, BitFamily::Secondary | BitFamily::SecondaryReset) {
        decoded.set("sympathetic", "yes");
    }
    decoded.sentence = format!("NVLink {link}: {} ({})", worst.name(), named.join(", ")).into();
}
