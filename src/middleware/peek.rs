//! Bodies of responses that are read and handed over all the same.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use reqwest::{Response, ResponseBuilderExt};

/// Reads the body up to `longest` bytes. Returns it if that was all, and a response whose body is whole in any case.
pub(super) async fn read(response: Response, longest: usize) -> (Response, Option<Vec<u8>>) {
    let url = response.url().clone();
    let (mut head, mut rest) = http::Response::<reqwest::Body>::from(response).into_parts();
    let mut read = VecDeque::new();
    let mut bytes = Vec::new();
    let is_whole = loop {
        match poll_fn(|context| Pin::new(&mut rest).poll_frame(context)).await {
            None => break true,
            Some(frame) => {
                if let Some(data) = frame.as_ref().ok().and_then(Frame::data_ref) {
                    bytes.extend_from_slice(&data[..data.len().min(longest.saturating_add(1) - bytes.len())]);
                }
                let failed = frame.is_err();
                read.push_back(frame);
                if failed || bytes.len() > longest {
                    break false;
                }
            }
        }
    };
    // The way back loses the address, unless it is told.
    if let Ok(known) = http::Response::builder().url(url).body(()) {
        head.extensions.extend(known.into_parts().0.extensions);
    }
    let body = reqwest::Body::wrap(Peeked { read, rest });
    (http::Response::from_parts(head, body).into(), is_whole.then_some(bytes))
}

/// What was read, then what was not.
struct Peeked {
    read: VecDeque<Result<Frame<Bytes>, reqwest::Error>>,
    rest: reqwest::Body,
}

impl Body for Peeked {
    type Data = Bytes;
    type Error = reqwest::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, reqwest::Error>>> {
        match self.read.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut all) = (self.rest.size_hint(), SizeHint::new());
        let read: usize = self.read.iter().flatten().filter_map(Frame::data_ref).map(Bytes::len).sum();
        let with_read = |bytes: u64| bytes.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        if let Some(most) = rest.upper() {
            all.set_upper(with_read(most));
        }
        all.set_lower(with_read(rest.lower()));
        all
    }
}
