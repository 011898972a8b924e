//! Colours and letters, and what becomes of them on a dark page.

use std::fmt::Write;

use plotters::style::RGBColor;

pub(super) const FONT: &str = "sans-serif";

pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
pub(super) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
pub(super) const MUTED: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub(super) const GRID: RGBColor = RGBColor(0xe4, 0xe8, 0xec);

/// Told apart by those who do not see red or green as others do, too (after Okabe and Ito).
pub(super) const SERIES: [RGBColor; 6] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xb8, 0x5a, 0x90),
    RGBColor(0xb0, 0x7d, 0x00),
    RGBColor(0x3a, 0x9a, 0xd0),
];

/// What each colour is on a dark page.
const DARK: [(RGBColor, RGBColor); 10] = [
    (PAPER, RGBColor(0x0d, 0x11, 0x17)),
    (INK, RGBColor(0xe6, 0xed, 0xf3)),
    (MUTED, RGBColor(0x9d, 0xa7, 0xb3)),
    (GRID, RGBColor(0x26, 0x2c, 0x36)),
    (SERIES[0], RGBColor(0x4d, 0xa8, 0xe8)),
    (SERIES[1], RGBColor(0xff, 0x8f, 0x3f)),
    (SERIES[2], RGBColor(0x2c, 0xc9, 0x99)),
    (SERIES[3], RGBColor(0xe0, 0x8f, 0xbb)),
    (SERIES[4], RGBColor(0xe8, 0xb5, 0x3a)),
    (SERIES[5], RGBColor(0x8c, 0xc8, 0xf0)),
];

/// The picture with a title for those who hear it, and with rules of style for viewers that prefer dark pages. Attributes
/// of SVG give way to them; a viewer that knows no rules of style shows the light picture.
pub(super) fn with_dark(svg: &str, title: &str) -> String {
    let mut style = String::from("<style>@media (prefers-color-scheme: dark) {");
    for (light, dark) in DARK {
        let (light, dark) = (hex(light), hex(dark));
        // It writes into a string.
        let _ = write!(style, "[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}");
    }
    style.push_str("}</style>");
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let end_of_tag = svg.find('>').map_or(0, |end| end + 1);
    let (tag, rest) = svg.split_at(end_of_tag);
    format!("{tag}\n<title>{title}</title>\n{style}{rest}")
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
