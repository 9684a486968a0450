//! An endpoint's clock against ours, by the `Date` of its answer.

use std::time::{Duration, SystemTime};

use super::finding::Finding;

/// Clocks further apart than this confuse the search for a task's start, seconds.
const NOTABLE: u64 = 5;
/// Clocks further apart than this make certificates and expiries wrong, seconds.
const HARMFUL: u64 = 60;

/// Judges what is certain: `theirs` has whole seconds and was written somewhere between `sent` and `sent + took`.
pub(super) fn skew(endpoint: &str, theirs: SystemTime, sent: SystemTime, took: Duration) -> Finding {
    let (apart, way) = match theirs.duration_since(sent + took) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(_) => match sent.duration_since(theirs + Duration::from_secs(1)) {
            Ok(behind) => (behind, "behind"),
            Err(_) => (Duration::ZERO, "with"),
        },
    };
    let seconds = apart.as_secs();
    let text = format!("{endpoint} is at least {seconds} s {way} this machine");
    let fix = "chronyc tracking   # on both: which of the two is wrong";
    match seconds {
        0..NOTABLE => Finding::ok("clock", format!("{endpoint} agrees with this machine")),
        NOTABLE..HARMFUL => Finding::warning("clock", text).fix(fix),
        _ => Finding::problem("clock", text).fix(fix),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::cli::doctor::finding::Level;

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn clocks_are_judged_by_what_is_certain() {
        let level = |sent, theirs, took| skew("e", at(theirs), at(sent), Duration::from_secs(took)).level;
        assert_eq!(level(1000, 1000, 0), Level::Ok);
        assert_eq!(level(1000, 1004, 0), Level::Ok);
        assert_eq!(level(1000, 1005, 0), Level::Warning);
        // The second that is running there is not over.
        assert_eq!(level(1000, 995, 0), Level::Ok);
        assert_eq!(level(1000, 994, 0), Level::Warning);
        // A slow answer proves less.
        assert_eq!(level(1000, 1014, 10), Level::Ok);
        assert_eq!(level(1000, 1059, 0), Level::Warning);
        assert_eq!(level(1000, 1060, 0), Level::Problem);
        assert_eq!(level(2000, 1000, 0), Level::Problem);
    }

    #[test]
    fn a_wrong_clock_says_which_way() {
        assert!(skew("e", at(1000), at(2000), Duration::ZERO).text.contains("behind"));
        assert!(skew("e", at(2000), at(1000), Duration::ZERO).text.contains("ahead of"));
    }
}
