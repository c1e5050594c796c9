//! Data set: 1,797 real images of handwritten digits, built into the binary (`data/README.md` names source and
//! licence).

use std::io::Read;

/// Number of pixels of an image.
pub(crate) const PIXELS: usize = 64;
/// Number of digit classes.
pub(crate) const CLASSES: usize = 10;

static FILE: &[u8] = include_bytes!("../data/digits.csv.gz");

/// Error of the built-in file: this binary is damaged.
#[derive(Debug, thiserror::Error)]
#[error("read the built-in digits: {0}")]
pub struct DataError(String);

/// Images with their digits.
#[derive(Debug, Clone)]
pub(crate) struct DigitImages {
    /// 64 values of 0..=1 per image.
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

impl DigitImages {
    /// Unpacks the built-in set.
    pub(crate) fn load() -> Result<Self, DataError> {
        let mut text = String::new();
        flate2::read::GzDecoder::new(FILE)
            .read_to_string(&mut text)
            .map_err(|e| DataError(e.to_string()))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self, DataError> {
        let mut pixels = Vec::new();
        let mut labels = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let problem = |what: &str| DataError(format!("line {}: {what}", at + 1));
            let values: Vec<u8> = line
                .split(',')
                .map(|field| field.parse())
                .collect::<Result<_, _>>()
                .map_err(|_| problem("a field is no small whole number"))?;
            let (&label, image) = values.split_last().ok_or_else(|| problem("empty"))?;
            if image.len() != PIXELS || usize::from(label) >= CLASSES || image.iter().any(|&p| p > 16) {
                return Err(problem("want 64 pixels of 0..16 and a digit"));
            }
            // Sixteenths are exact in f32.
            pixels.extend(image.iter().map(|&p| f32::from(p) / 16.0));
            labels.push(label);
        }
        Ok(Self { pixels, labels })
    }

    /// Returns the number of images.
    pub(crate) fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns the image of a sample.
    pub(crate) fn image(&self, sample: usize) -> &[f32] {
        &self.pixels[sample * PIXELS..][..PIXELS]
    }

    /// Returns the digit of a sample.
    pub(crate) fn label(&self, sample: usize) -> u8 {
        self.labels[sample]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_set_has_1797_images_of_ten_digits() {
        let digits = DigitImages::load().unwrap();
        assert_eq!(digits.len(), 1797);
        let mut counts = [0; CLASSES];
        for sample in 0..digits.len() {
            counts[usize::from(digits.label(sample))] += 1;
        }
        // As counted in the data set's own description.
        assert_eq!(counts, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert_eq!(digits.image(0)[2], 5.0 / 16.0);
    }

    #[test]
    fn the_shipped_file_is_the_one_named_in_its_readme() {
        assert_eq!(FILE.len(), 57_523);
        assert_eq!(
            blake3::hash(FILE).to_hex().as_str(),
            "6e6d08206f25ea2b4115da8d88938afa92b1e035f762278c06b5df6fb254188a"
        );
    }

    #[test]
    fn a_damaged_line_is_named() {
        let error = DigitImages::parse("0,1\n").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
