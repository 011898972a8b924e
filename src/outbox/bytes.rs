//! Numbers and texts as bytes, one after the other. Numbers are big-endian, so that they sort as bytes do.

use super::store::StoreError;

/// Bytes in the making.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// With its length before it.
    pub(super) fn text(mut self, text: &str) -> Self {
        self.0.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.0.extend(text.as_bytes());
        self
    }

    /// Without its length: the last one.
    pub(super) fn rest(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Bytes that are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn u8(&mut self) -> Result<u8, StoreError> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, StoreError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, StoreError> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, StoreError> {
        let len = usize::try_from(self.u32()?).map_err(|_| cut())?;
        let (text, rest) = self.0.split_at_checked(len).ok_or_else(cut)?;
        self.0 = rest;
        str::from_utf8(text).map_err(|error| StoreError::Damaged { message: format!("a text is none: {error}") })
    }

    pub(super) const fn rest(self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(cut)?;
        self.0 = rest;
        Ok(*bytes)
    }
}

fn cut() -> StoreError {
    StoreError::Damaged { message: "an entry is shorter than it should be".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let bytes = Writer::default().u8(7).u32(8).u64(u64::MAX).text("a жук").text("").rest(b"rest").done();
        let mut reader = Reader::new(&bytes);
        assert_eq!((reader.u8(), reader.u32(), reader.u64()), (Ok(7), Ok(8), Ok(u64::MAX)));
        assert_eq!((reader.text(), reader.text(), reader.rest()), (Ok("a жук"), Ok(""), b"rest".as_slice()));
    }

    #[test]
    fn whatever_is_cut_short_is_damaged() {
        let bytes = Writer::default().u64(1).text("a text").done();
        for len in 0..bytes.len() {
            let mut reader = Reader::new(&bytes[..len]);
            let read = reader.u64().and_then(|_| reader.text());
            assert!(matches!(read, Err(StoreError::Damaged { .. })), "{len}: {read:?}");
        }
        assert!(matches!(Reader::new(&[0, 0, 0, 1, 0xff]).text(), Err(StoreError::Damaged { .. })));
    }
}
