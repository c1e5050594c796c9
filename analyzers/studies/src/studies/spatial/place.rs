//! Positions encoded in node names.

/// Place on a grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GridPosition {
    /// Name of the grid: places on different grids have no distance.
    pub(super) grid: String,
    /// Column and row of the cell: a cabinet, or a node's number in the only row.
    pub(super) cell: (u32, u32),
    /// Named positions, those of the cell included.
    pub(super) parts: Vec<(&'static str, u32)>,
}

/// Larger numbers are not positions.
const MOST: u32 = 1_000_000;

impl GridPosition {
    /// Parses a Cray's `c11-2c1s4n1`, a Blue Gene's `R23-M0-N4`, or any name that ends in a number.
    pub(super) fn of(name: &str) -> Option<Self> {
        cray(name).or_else(|| blue_gene(name)).or_else(|| numbered(name))
    }
}

/// Parses the leading number of a text; returns it with the rest.
fn front(text: &str) -> Option<(u32, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok().filter(|number| *number < MOST)?;
    Some((number, &text[end..]))
}

/// Parses column, row, cage, slot and node of a Cray name.
fn cray(name: &str) -> Option<GridPosition> {
    let mut rest = name;
    let mut parts = Vec::new();
    for (mark, part) in [
        ("c", "column"),
        ("-", "row"),
        ("c", "cage"),
        ("s", "slot"),
        ("n", "node"),
    ] {
        let (number, behind) = front(rest.strip_prefix(mark)?)?;
        parts.push((part, number));
        rest = behind;
    }
    rest.is_empty().then(|| GridPosition {
        grid: "cabinets".to_owned(),
        cell: (parts[0].1, parts[1].1),
        parts,
    })
}

/// Parses row and column of a Blue Gene rack, one hexadecimal digit each, and the midplane.
fn blue_gene(name: &str) -> Option<GridPosition> {
    let mut digits = name.strip_prefix('R')?.chars();
    let row = digits.next()?.to_digit(16)?;
    let column = digits.next()?.to_digit(16)?;
    let (midplane, _) = front(digits.as_str().strip_prefix("-M")?)?;
    Some(GridPosition {
        grid: "racks".to_owned(),
        cell: (column, row),
        parts: vec![("column", column), ("row", row), ("midplane", midplane)],
    })
}

/// Parses the number at the end of a name; the part before it names the grid.
fn numbered(name: &str) -> Option<GridPosition> {
    let start = name
        .rfind(|c: char| !c.is_ascii_digit())
        .map_or(0, |at| at + name[at..].chars().next().map_or(0, char::len_utf8));
    let (number, _) = front(&name[start..])?;
    Some(GridPosition {
        grid: name[..start].to_owned(),
        cell: (number, 0),
        parts: vec![("number", number)],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_things_stand() {
        let place = GridPosition::of("c11-2c1s4n3").expect("a Cray's");
        assert_eq!((place.grid.as_str(), place.cell), ("cabinets", (11, 2)));
        assert_eq!(place.parts[2..], [("cage", 1), ("slot", 4), ("node", 3)]);
        let place = GridPosition::of("R2a-M1-N4-C:J12-U01").expect("a Blue Gene's");
        assert_eq!((place.grid.as_str(), place.cell), ("racks", (10, 2)));
        let place = GridPosition::of("20/17").expect("a number");
        assert_eq!((place.grid.as_str(), place.cell), ("20/", (17, 0)));
        assert_eq!(GridPosition::of("knoten-ü7").map(|place| place.cell), Some((7, 0)));
        for name in ["", "login", "6f24e2b2-5b9b-4f8a-82ec-d7d57d7c675f", "node-99999999999"] {
            assert_eq!(GridPosition::of(name), None, "{name}");
        }
    }
}
