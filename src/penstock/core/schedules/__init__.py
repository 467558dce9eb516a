"""When a schedule fires, and what a fire does: pure functions of a specification, a time zone and instants.

| Question | Module |
|---|---|
| Is this cron expression valid, and which wall-clock times does it name? | `cron` |
| Which instants are those wall-clock times, across clock changes? | `wall_clock` |
| When does this schedule fire next? | `spec` |
| What does its owner write, and what is wrong with it? | `spec_text` |
| What is stored of it? | `record` |
| What does it do now, and when next? | `due` |
| What should its owner know before it is saved? | `preview` |
| Why has it not fired? | `explanation` |
| Given its open runs, does a fire start, wait, replace a run, or is it skipped? | `overlap` |
"""
