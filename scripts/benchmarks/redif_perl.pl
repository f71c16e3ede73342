# One pass of ReDIF-perl over the files that are listed in a file: perl -IDIR/lib redif_perl.pl LIST | --version
# Prints JSON as parse_child.py does: CPU seconds of the pass, templates, bad ones, files it died on.
use strict;
use warnings;

BEGIN {
    # What its Configure writes: checksums of templates on, checks of lengths off. It is used where none was written.
    if (!eval { require ReDIF::setup_conf; 1 }) {
        $INC{'ReDIF/setup_conf.pm'} = __FILE__;
        eval q{package ReDIF::Parser; use constant { calculate_md5_checksum => 1, value_length_checking => 0 }; 1}
            or die $@;
    }
}
use ReDIF::Parser;

if ($ARGV[0] eq '--version') {
    no warnings 'once';
    my $spec = $INC{'ReDIF/Parser.pm'} =~ s/Parser\.pm$/redif.spec/r;
    open my $in, '<', $spec or die "$spec: $!\n";
    my ($version) = map { /version\D{0,20}([0-9]+\.[0-9]+)/i ? $1 : () } <$in>;
    print $version // 'unknown', "\n";
    exit;
}

open my $list, '<', $ARGV[0] or die "$ARGV[0]: $!\n";
chomp(my @files = <$list>);
my ($bytes, $templates, $bad, $failed) = (0, 0, 0, 0);
$bytes += -s for @files;
ReDIF::Parser::redif_set_parser_options(utf8_output => 1);
my ($user, $system) = times;
{
    local $SIG{__WARN__} = sub { };
    for my $file (@files) {
        my $whole = eval {
            if (ReDIF::Parser::redif_open_file($file)) {
                while (my $template = ReDIF::Parser::redif_get_next_template_good_or_bad()) {
                    $templates++;
                    $bad++ if $template->{PROBLEMS};
                }
            }
            1;
        };
        $failed++ if !$whole;
    }
}
my ($user_now, $system_now) = times;
printf qq({"cpu": %.3f, "templates": %d, "bad": %d, "failed_files": %d, "files": %d, "bytes": %d}\n),
    $user_now + $system_now - $user - $system, $templates, $bad, $failed, scalar @files, $bytes;
