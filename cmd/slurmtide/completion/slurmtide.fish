# fish completion of slurmtide
function __slurmtide_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete $words[2..-1] "$current" 2>/dev/null)
        if test "$line" = :files
            if string match -q -- '--*=*' "$current"
                for file in (__fish_complete_path (string replace -r '^[^=]*=' '' -- "$current"))
                    string match -r '^[^=]*=' -- "$current" | read -l flag
                    echo $flag$file
                end
            else
                __fish_complete_path "$current"
            end
        else
            echo $line
        end
    end
end
complete -c slurmtide -f -a '(__slurmtide_complete)'
