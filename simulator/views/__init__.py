"""What a run shows: its page, its charts, its numbers as text.

    report.write_report("runs/everyday-7")            # → runs/everyday-7/report.html

`findings` counts what the page shows, and serves the terminal's answer too; `charts` defines each
chart once, for the page (`svg`) and for notebooks (Altair).
"""
