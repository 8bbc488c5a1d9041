//! Two functions at work at the same time, each on one thing at once.

use std::sync::mpsc;
use std::thread;

/// Hands what `first` makes to `second`, one after another, until there is none: `first` makes the next while `second` has
/// the last.
///
/// Each is called by one thread alone, so there are never two calls of one in flight: Apple's runtime gives wrong outputs
/// for those, and two of different bundles may overlap. No more than two things are held at any time.
///
/// # Errors
/// What stopped the one or the other; the first stage's where both did.
pub fn side_by_side<T: Send, E: Send>(
    mut first: impl FnMut() -> Result<Option<T>, E> + Send,
    mut second: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    thread::scope(|threads| {
        // A hand-over without a buffer: what is made waits in the hands of who made it.
        let (give, take) = mpsc::sync_channel(0);
        let maker = threads.spawn(move || {
            while let Some(made) = first()? {
                // Nobody takes it any more once the second stage has failed, whose error counts then.
                if give.send(made).is_err() {
                    break;
                }
            }
            Ok(())
        });
        let taken = take.into_iter().try_for_each(&mut second);
        match maker.join() {
            Ok(made) => made.and(taken),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;
    use std::sync::Mutex;
    use std::time::Duration;

    /// Calls that have begun and ended, of each stage.
    #[derive(Clone, Copy, Debug, Default)]
    struct Calls {
        begun: [usize; 2],
        ended: [usize; 2],
    }

    #[derive(Default)]
    struct Watch {
        calls: Mutex<Calls>,
        changed: Condvar,
    }

    impl Watch {
        /// A call of `stage`, which lasts until `until` holds; whether that came to be.
        fn call(&self, stage: usize, until: impl Fn(&Calls) -> bool) -> bool {
            let mut calls = self.calls.lock().unwrap();
            calls.begun[stage] += 1;
            assert_eq!(calls.begun[stage], calls.ended[stage] + 1, "two calls of stage {stage} at once");
            self.changed.notify_all();
            let patience = Duration::from_secs(60);
            let (mut calls, timeout) = self.changed.wait_timeout_while(calls, patience, |c| !until(c)).unwrap();
            calls.ended[stage] += 1;
            self.changed.notify_all();
            !timeout.timed_out()
        }
    }

    const WINDOWS: usize = 5;

    /// Each call of the second stage waits for the next of the first to begin, and that one for the second stage to be
    /// at the window before: no order but that of two at work at the same time lets all of them end.
    #[test]
    fn the_next_window_is_encoded_while_the_last_is_read_and_never_two_of_one() {
        let watch = Watch::default();
        let mut next = 0;
        let mut read = Vec::new();
        let encode = || {
            let window = next;
            next += 1;
            if window == WINDOWS {
                return Ok(None);
            }
            let met = watch.call(0, |calls| calls.begun[1] >= window);
            if met { Ok(Some(window)) } else { Err(format!("window {} was not read beside {window}", window - 1)) }
        };
        let take = |window| {
            let last = window + 1 == WINDOWS;
            let met = watch.call(1, |calls| last || calls.begun[0] > window + 1);
            read.push(window);
            if met { Ok(()) } else { Err(format!("window {} was not encoded beside {window}", window + 1)) }
        };
        assert_eq!(side_by_side(encode, take), Ok(()));
        assert_eq!(read, (0..WINDOWS).collect::<Vec<_>>());
        let calls = *watch.calls.lock().unwrap();
        assert_eq!((calls.begun, calls.ended), ([WINDOWS; 2], [WINDOWS; 2]));
    }

    #[test]
    fn whoever_fails_ends_both() {
        let (mut made, mut taken) = (0, 0);
        let stopped = side_by_side(
            || {
                made += 1;
                Ok(Some(made))
            },
            |_| {
                taken += 1;
                if taken == 3 { Err("read") } else { Ok(()) }
            },
        );
        assert_eq!((stopped, taken), (Err("read"), 3));
        assert!(made <= 5, "{made} made for 3 taken");

        let (mut made, mut taken) = (0, 0);
        let stopped = side_by_side(
            || {
                made += 1;
                if made == 3 { Err("encode") } else { Ok(Some(())) }
            },
            |()| {
                taken += 1;
                Ok(())
            },
        );
        assert_eq!((stopped, taken), (Err("encode"), 2), "what was made is read to its end");
        assert_eq!(side_by_side(|| Ok::<_, ()>(None::<()>), |()| Err(())), Ok(()), "nothing to do");
    }
}
