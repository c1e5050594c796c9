//! Drawing of boxes, lines and text at positions, independent of the output format. Writes itself as SVG; raster output
//! draws the items.

use std::fmt::Write as _;

/// Red, green, blue.
pub type RgbColour = [u8; 3];

/// Default colour of text and lines: black.
pub const INK: RgbColour = [0, 0, 0];

/// Drawing; lengths are pixels from the upper left corner.
#[derive(Debug, Clone, PartialEq)]
pub struct SvgDrawing {
    pub width: f64,
    pub height: f64,
    /// Items in drawing order; later ones cover earlier ones.
    pub items: Vec<DrawingItem>,
}

/// Item of a drawing.
#[derive(Debug, Clone, PartialEq)]
pub enum DrawingItem {
    Box {
        /// Upper left corner.
        at: (f64, f64),
        /// Width and height.
        size: (f64, f64),
        fill: RgbColour,
        /// Tooltip; raster output ignores it.
        title: Option<String>,
    },
    /// Straight lines from point to point.
    Line {
        points: Vec<(f64, f64)>,
        colour: RgbColour,
        width: f64,
    },
    Words {
        /// Position of the anchor on the base line.
        at: (f64, f64),
        anchor: TextAnchor,
        /// Text, which may contain any foreign characters.
        text: String,
        colour: RgbColour,
        /// Font size in pixels.
        size: f64,
    },
}

/// Horizontal alignment of text relative to its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextAnchor {
    /// The text starts at the position.
    Start,
    /// The text is centred on the position.
    Middle,
    /// The text ends at the position.
    End,
}

impl SvgDrawing {
    /// Creates an empty drawing.
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            items: Vec::new(),
        }
    }

    /// Adds a box without a tooltip.
    pub fn boxed(&mut self, at: (f64, f64), size: (f64, f64), fill: RgbColour) {
        self.items.push(DrawingItem::Box {
            at,
            size,
            fill,
            title: None,
        });
    }

    /// Adds lines from point to point.
    pub fn line(&mut self, points: Vec<(f64, f64)>, colour: RgbColour, width: f64) {
        self.items.push(DrawingItem::Line { points, colour, width });
    }

    /// Adds text of the default size and colour.
    pub fn words(&mut self, at: (f64, f64), anchor: TextAnchor, text: impl Into<String>) {
        self.coloured(at, anchor, text, INK);
    }

    /// Adds text of the default size in a colour.
    pub fn coloured(&mut self, at: (f64, f64), anchor: TextAnchor, text: impl Into<String>, colour: RgbColour) {
        let text = text.into();
        self.items.push(DrawingItem::Words {
            at,
            anchor,
            text,
            colour,
            size: 12.0,
        });
    }

    /// Adds a headline at 14 pixels.
    pub fn headline(&mut self, at: (f64, f64), text: impl Into<String>) {
        self.items.push(DrawingItem::Words {
            at,
            anchor: TextAnchor::Start,
            text: text.into(),
            colour: INK,
            size: 14.0,
        });
    }

    /// Renders the drawing as an SVG document.
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

impl DrawingItem {
    fn write(&self, svg: &mut String) {
        // Writing to a string does not fail.
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
                    TextAnchor::Start => "start",
                    TextAnchor::Middle => "middle",
                    TextAnchor::End => "end",
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

fn hex([red, green, blue]: RgbColour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Escapes text for use inside an element: foreign names may contain any characters.
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
