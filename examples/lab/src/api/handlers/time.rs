//! Points in time as PVE writes them into names and logs, in UTC.

/// Year, month, day, hour, minute and second of epoch seconds.
fn parts(at: i64) -> (i64, i64, i64, i64, i64, i64) {
    let (days, rest) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    // Days to a date in a calendar whose years begin in March, so that a leap day is a year's last.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day = shifted.rem_euclid(146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    (year, month, day_of_month, rest / 3600, rest / 60 % 60, rest % 60)
}

/// `2026_11_30-02_33_44`, as in the names of backups.
pub(crate) fn in_name(at: i64) -> String {
    let (year, month, day, hour, minute, second) = parts(at);
    format!("{year}_{month:02}_{day:02}-{hour:02}_{minute:02}_{second:02}")
}

/// `2026-11-30 02:33:44`, as in logs.
pub(crate) fn in_log(at: i64) -> String {
    let (year, month, day, hour, minute, second) = parts(at);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_moments_come_out_right() {
        assert_eq!(in_log(0), "1970-01-01 00:00:00");
        assert_eq!(in_log(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(in_name(1_796_006_024), "2026_11_30-02_33_44");
    }
}
