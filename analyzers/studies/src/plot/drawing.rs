//! What a picture is made of, whatever it becomes: boxes, lines and words at their places. It writes itself as SVG; whoever
//! wants pixels draws its items.

use std::fmt::Write as _;

/// Red, green, blue.
pub type Colour = [u8; 3];

/// Black.
pub const INK: Colour = [0, 0, 0];

/// Lengths are pixels from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
    /// What is on it; what comes later lies above.
    pub items: Vec<Item>,
}

/// One thing in a picture.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A filled box.
    Box {
        /// Its upper left corner.
        at: (f64, f64),
        /// Width and height.
        size: (f64, f64),
        /// Its colour.
        fill: Colour,
        /// What it says of itself when it is pointed at; pictures of pixels leave it out.
        title: Option<String>,
    },
    /// Straight lines from point to point.
    Line {
        /// The points.
        points: Vec<(f64, f64)>,
        /// Their colour.
        colour: Colour,
        /// Their width.
        width: f64,
    },
    /// Words.
    Words {
        /// Where the anchor of their base line is.
        at: (f64, f64),
        /// Where they lie about it.
        anchor: Anchor,
        /// The words; foreign names may hold anything.
        text: String,
        /// Their colour.
        colour: Colour,
        /// Height of the letters.
        size: f64,
    },
}

/// Where words lie about their place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// They begin there.
    Start,
    /// Their middle is there.
    Middle,
    /// They end there.
    End,
}

impl Drawing {
    /// An empty one.
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            items: Vec::new(),
        }
    }

    /// Adds a box without words of its own.
    pub fn boxed(&mut self, at: (f64, f64), size: (f64, f64), fill: Colour) {
        self.items.push(Item::Box {
            at,
            size,
            fill,
            title: None,
        });
    }

    /// Adds lines from point to point.
    pub fn line(&mut self, points: Vec<(f64, f64)>, colour: Colour, width: f64) {
        self.items.push(Item::Line { points, colour, width });
    }

    /// Adds words of the usual size.
    pub fn words(&mut self, at: (f64, f64), anchor: Anchor, text: impl Into<String>) {
        self.coloured(at, anchor, text, INK);
    }

    /// Adds words of the usual size in a colour.
    pub fn coloured(&mut self, at: (f64, f64), anchor: Anchor, text: impl Into<String>, colour: Colour) {
        let text = text.into();
        self.items.push(Item::Words {
            at,
            anchor,
            text,
            colour,
            size: 12.0,
        });
    }

    /// Adds a headline.
    pub fn headline(&mut self, at: (f64, f64), text: impl Into<String>) {
        self.items.push(Item::Words {
            at,
            anchor: Anchor::Start,
            text: text.into(),
            colour: INK,
            size: 14.0,
        });
    }

    /// As an SVG document.
    pub fn svg(&self) -> String {
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
             font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>",
            self.width, self.height
        );
        self.items.iter().for_each(|item| item.write(&mut svg));
        svg.push_str("</svg>\n");
        svg
    }
}

impl Item {
    fn write(&self, svg: &mut String) {
        // Writing to a text does not fail.
        let _ = match self {
            Self::Box { at, size, fill, title } => {
                let begin = format!(
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"",
                    at.0,
                    at.1,
                    size.0,
                    size.1,
                    hex(*fill)
                );
                match title {
                    None => write!(svg, "{begin}/>"),
                    Some(title) => write!(svg, "{begin}><title>{}</title></rect>", escape(title)),
                }
            }
            Self::Line { points, colour, width } => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                write!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"/>",
                    points.join(" "),
                    hex(*colour)
                )
            }
            Self::Words {
                at,
                anchor,
                text,
                colour,
                size,
            } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                write!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\" fill=\"{}\">{}</text>",
                    at.0,
                    at.1,
                    hex(*colour),
                    escape(text)
                )
            }
        };
    }
}

fn hex([red, green, blue]: Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Text that is safe inside an element: foreign names may hold anything.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            c if c.is_control() => safe.push(char::REPLACEMENT_CHARACTER),
            c => safe.push(c),
        }
    }
    safe
}
