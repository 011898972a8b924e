//! Decimal numbers and fractions as millionths, without floating point.

/// `0.99`, `3`, `1/30`, `3%` in millionths, cut.
pub(super) fn millionths(text: &str) -> Option<u64> {
    let text = text.trim();
    if let Some(per_cent) = text.strip_suffix('%') {
        return decimal(per_cent.trim(), 10_000);
    }
    match text.split_once('/') {
        Some((part, of)) => {
            let (part, of): (u64, u64) = (part.trim().parse().ok()?, of.trim().parse().ok()?);
            (u128::from(part) * 1_000_000).checked_div(of.into()).and_then(|number| u64::try_from(number).ok())
        }
        None => decimal(text, 1_000_000),
    }
}

/// A decimal number times `scale`.
fn decimal(text: &str, scale: u64) -> Option<u64> {
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(rest) || (text.contains('.') && rest.is_empty()) {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut part = 0;
    let mut worth = scale;
    for digit in rest.bytes() {
        worth /= 10;
        part += u64::from(digit - b'0') * worth;
    }
    whole.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::millionths;

    #[test]
    fn decimals_fractions_and_per_cent_are_read_to_the_millionth() {
        let read = ["0.99", "3", "1/30", "3%", "2.5 %", "0.0000019"].map(millionths);
        assert_eq!(read, [Some(990_000), Some(3_000_000), Some(33_333), Some(30_000), Some(25_000), Some(1)]);
        assert_eq!(["", ".5", "1.", "-1", "1e3", "1/0", "x"].map(millionths), [None; 7]);
    }
}
