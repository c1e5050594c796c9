//! Pictures in files: SVG or PNG, by the file name.
//!
//! A PNG has two pixels for each unit of length, and fixed-width letters for Latin-1; other characters become question
//! marks. Absent: antialiasing, since no shape is round.

use std::convert::Infallible;
use std::io::Write as _;
use std::path::Path;

use embedded_graphics::Drawable;
use embedded_graphics::Pixel;
use embedded_graphics::draw_target::DrawTarget;
use embedded_graphics::geometry::{OriginDimensions, Point, Size};
use embedded_graphics::mono_font::iso_8859_1::{FONT_9X18, FONT_10X20};
use embedded_graphics::mono_font::{MonoFont, MonoTextStyle};
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::primitives::{Line, Primitive, PrimitiveStyle, Rectangle};
use embedded_graphics::text::{Alignment, Text};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use rankguard_console::error::CliError;
use rankguard_studies::{DrawingItem, RgbColour, SvgDrawing, TextAnchor};

/// Pixels for a unit of length.
const SCALE: f64 = 2.0;
/// Maximum side in pixels: a chart of ten thousand bars needs a browser.
const LONGEST: u32 = 16_384;
/// Font size from which text is drawn as a headline.
const HEADLINE: f64 = 14.0;

/// Writes a picture in the format of the file name.
pub(crate) fn write(file: &Path, drawing: &SvgDrawing) -> Result<(), CliError> {
    let extension = file.extension().and_then(|extension| extension.to_str());
    let written = match extension.map(str::to_ascii_lowercase).as_deref() {
        Some("svg") => std::fs::write(file, drawing.svg()).map_err(|problem| problem.to_string()),
        Some("png") => png(file, drawing),
        _ => {
            return Err(CliError::usage(
                format!("{} is not a file name of a plot", file.display()),
                "end it with .svg or .png",
            ));
        }
    };
    written.map_err(|problem| {
        CliError::failure(
            format!("cannot write {}", file.display()),
            "use a file in an existing folder",
        )
        .because(problem)
    })
}

fn png(file: &Path, drawing: &SvgDrawing) -> Result<(), String> {
    let bytes = PixelCanvas::of(drawing)?
        .encode()
        .map_err(|problem| problem.to_string())?;
    std::fs::write(file, bytes).map_err(|problem| problem.to_string())
}

/// RGB pixels, row by row.
struct PixelCanvas {
    size: Size,
    bytes: Vec<u8>,
}

impl PixelCanvas {
    fn of(drawing: &SvgDrawing) -> Result<Self, String> {
        let pixels = |length: f64| (length * SCALE).ceil().max(1.0);
        let width = pixels(drawing.width);
        let height = pixels(drawing.height);
        if width > f64::from(LONGEST) || height > f64::from(LONGEST) {
            return Err(format!(
                "{width:.0} times {height:.0} pixels are more than {LONGEST} on a side; name it .svg"
            ));
        }
        let size = Size::new(width as u32, height as u32);
        let mut canvas = Self {
            size,
            bytes: vec![0xff; size.width as usize * size.height as usize * 3],
        };
        for item in &drawing.items {
            let Ok(()) = canvas.item(item);
        }
        Ok(canvas)
    }

    fn item(&mut self, item: &DrawingItem) -> Result<(), Infallible> {
        match item {
            DrawingItem::Box { at, size, fill, .. } => {
                let from = point(*at);
                let to = point((at.0 + size.0, at.1 + size.1));
                // An item with a size is at least one pixel.
                let side = |from: i32, to: i32, size: f64| if size > 0.0 { (to - from).max(1) as u32 } else { 0 };
                let size = Size::new(side(from.x, to.x, size.0), side(from.y, to.y, size.1));
                let filled = Rectangle::new(from, size).into_styled(PrimitiveStyle::with_fill(colour(*fill)));
                filled.draw(self)
            }
            DrawingItem::Line { points, colour, width } => {
                let wide = (width * SCALE).round().max(1.0) as u32;
                points
                    .windows(2)
                    .try_for_each(|ends| self.stroke(point(ends[0]), point(ends[1]), wide, self::colour(*colour)))
            }
            DrawingItem::Words {
                at,
                anchor,
                text,
                colour,
                size,
            } => {
                let font: &MonoFont<'_> = if *size >= HEADLINE { &FONT_10X20 } else { &FONT_9X18 };
                let style = MonoTextStyle::new(font, self::colour(*colour));
                let anchor = match anchor {
                    TextAnchor::Start => Alignment::Left,
                    TextAnchor::Middle => Alignment::Center,
                    TextAnchor::End => Alignment::Right,
                };
                // One line, because foreign names may contain line breaks.
                let text: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
                Text::with_alignment(&text, point(*at), style, anchor)
                    .draw(self)
                    .map(drop)
            }
        }
    }

    /// Draws a line along an axis as a box; the library's wide lines overflow for long ones.
    fn stroke(&mut self, from: Point, to: Point, wide: u32, colour: Rgb888) -> Result<(), Infallible> {
        if from.x != to.x && from.y != to.y {
            return Line::new(from, to)
                .into_styled(PrimitiveStyle::with_stroke(colour, 1))
                .draw(self);
        }
        let half = Point::new_equal(wide as i32 / 2);
        let corner = from.component_min(to) - half;
        let length = Size::new(from.x.abs_diff(to.x), from.y.abs_diff(to.y));
        Rectangle::new(corner, length + Size::new_equal(wide))
            .into_styled(PrimitiveStyle::with_fill(colour))
            .draw(self)
    }

    /// Encodes a PNG file: header, compressed rows, end (PNG specification, 5 and 11.2). Rows are not filtered: areas
    /// of one colour compress well without.
    fn encode(&self) -> std::io::Result<Vec<u8>> {
        let mut head = Vec::new();
        head.extend_from_slice(&self.size.width.to_be_bytes());
        head.extend_from_slice(&self.size.height.to_be_bytes());
        // Eight bits of red, green and blue, the only compression and filter method, no interlacing.
        head.extend_from_slice(&[8, 2, 0, 0, 0]);
        let mut packed = ZlibEncoder::new(Vec::new(), Compression::default());
        for line in self.bytes.chunks(self.size.width as usize * 3) {
            packed.write_all(&[0])?;
            packed.write_all(line)?;
        }
        let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
        for (name, data) in [(b"IHDR", head), (b"IDAT", packed.finish()?), (b"IEND", Vec::new())] {
            chunk(&mut file, name, &data);
        }
        Ok(file)
    }
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    file.extend_from_slice(&(data.len() as u32).to_be_bytes());
    let named = file.len();
    file.extend_from_slice(name);
    file.extend_from_slice(data);
    let sum = crc32fast::hash(&file[named..]);
    file.extend_from_slice(&sum.to_be_bytes());
}

impl OriginDimensions for PixelCanvas {
    fn size(&self) -> Size {
        self.size
    }
}

impl DrawTarget for PixelCanvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            let (Ok(x), Ok(y)) = (u32::try_from(at.x), u32::try_from(at.y)) else {
                continue;
            };
            if x < self.size.width && y < self.size.height {
                let place = (y as usize * self.size.width as usize + x as usize) * 3;
                self.bytes[place..place + 3].copy_from_slice(&[colour.r(), colour.g(), colour.b()]);
            }
        }
        Ok(())
    }
}

fn point((x, y): (f64, f64)) -> Point {
    // The cast saturates, and clamping limits positions far beyond the canvas.
    let pixel = |length: f64| ((length * SCALE).round() as i32).clamp(-(LONGEST as i32), 2 * LONGEST as i32);
    Point::new(pixel(x), pixel(y))
}

fn colour([red, green, blue]: RgbColour) -> Rgb888 {
    Rgb888::new(red, green, blue)
}

#[cfg(test)]
mod tests {
    use rankguard_studies::{PlotContent, StudyPlot};

    use super::*;

    fn plot(shape: PlotContent) -> SvgDrawing {
        let plot = StudyPlot {
            title: "Ausfälle <b>".to_owned(),
            across: "失败 s".to_owned(),
            shape,
        };
        plot.drawing()
    }

    /// Width, height and pixels, decoded by the specification.
    fn decoded(file: &Path) -> (u32, u32, Vec<u8>) {
        let bytes = std::fs::read(file).expect("the picture");
        let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
        let mut chunks = Vec::new();
        while let Some((length, more)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let sum = u32::from_be_bytes(more[4 + length..8 + length].try_into().expect("four bytes"));
            assert_eq!(sum, crc32fast::hash(&more[..4 + length]));
            chunks.push((&more[..4], &more[4..4 + length]));
            rest = &more[8 + length..];
        }
        let [(b"IHDR", head), (b"IDAT", data), (b"IEND", [])] = chunks[..] else {
            panic!("{} chunks", chunks.len());
        };
        let number = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let width = number(0);
        let height = number(4);
        assert_eq!(head[8..], [8, 2, 0, 0, 0]);
        let mut lines = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::ZlibDecoder::new(data), &mut lines).expect("packed lines");
        let wide = width as usize * 3 + 1;
        assert_eq!(lines.len(), wide * height as usize);
        let pixels = lines.chunks(wide).flat_map(|line| &line[1..]).copied().collect();
        (width, height, pixels)
    }

    #[test]
    fn a_bar_is_as_long_in_pixels_as_its_value_and_words_stand_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.PNG");
        let drawing = plot(PlotContent::Bars(vec![
            ("one".to_owned(), 3.0),
            ("two".to_owned(), 6.0),
        ]));
        write(&file, &drawing).expect("a picture");
        let (width, height, bytes) = decoded(&file);
        assert_eq!(
            (f64::from(width), f64::from(height)),
            (drawing.width * SCALE, drawing.height * SCALE)
        );
        let blue = bytes.chunks(3).filter(|pixel| **pixel == [0x2b, 0x6c, 0xb0]).count();
        // 210 and 420 by 17, each length twice as many pixels.
        assert_eq!(blue, (420 + 840) * 34);
        assert!(bytes.chunks(3).any(|pixel| *pixel == [0, 0, 0]), "no words");
    }

    #[test]
    fn curves_that_hold_no_numbers_and_charts_of_any_size_are_refused_or_drawn() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("a.png");
        let odd = vec![(f64::NAN, 1.0), (0.0, f64::INFINITY), (1e300, -1e300), (2.0, 0.5)];
        write(&file, &plot(PlotContent::Steps(vec![("odd".to_owned(), odd)]))).expect("a picture");
        let many = (0..10_000).map(|bar| (bar.to_string(), 1.0)).collect();
        let problem = write(&file, &plot(PlotContent::Bars(many))).expect_err("too long");
        assert!(problem.lines().contains("name it .svg"), "{}", problem.lines());
        let problem = write(&folder.path().join("a.gif"), &plot(PlotContent::Bars(Vec::new()))).expect_err("no form");
        assert!(problem.lines().contains(".svg or .png"), "{}", problem.lines());
    }
}
